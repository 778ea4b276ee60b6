"""The locations of secrets in a home folder, which the sandbox hides or shows only in part.

Each entry lists programs by command name and, after a colon, places relative to the home folder. The programs fail to
log in without these places. No command needs the places of an entry without programs. `*` stands for any part of one
name. A place is a file, or a folder with all its contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tools.permissions.protected_files import AGENT_FOLDERS


@dataclass(frozen=True, slots=True)
class SecretPlace:
    programs: frozenset[str]  # command names of the programs that fail to log in without the place
    is_settings: bool  # whether programs also read settings from the file; if so, a file without secrets is shown


_STORES = """
ssh, scp, sftp, rsync, git, ansible: .ssh, .putty
git: .git-credentials, .config/git/credentials, .cache/git/credential, .config/git-credential-manager, .gcm
gh: .config/gh, .config/hub, .config/github-copilot, .copilot
glab, tea, jira, bb: .config/glab-cli, .config/tea, .config/lab.toml, .jira.d, .config/.jira, .config/bitbucket*,
    .gist
curl, git, wget, pip, heroku, http, bq: .netrc, _netrc, .netrc.gpg, .authinfo, .authinfo.gpg, .config/heroku
gpg, git, pass, sops: .gnupg, .config/sops, .config/age, .age, .password-store, .pass, .local/share/gopass,
    .config/gopass
op, bw, rbw, lpass, keepassxc-cli: .config/op, .op, .config/1Password, .1password, .config/Bitwarden*, .config/rbw,
    .local/share/rbw, .lpass, .local/share/lpass, .config/lpass, .config/KeePass, .config/keepassxc, .cache/keepassxc,
    .config/Enpass, .config/Dashlane
: .local/share/keyrings, .local/share/kwalletd, .gnome2/keyrings, .local/share/python_keyring, .config/Proton*,
    .config/goa-1.0, .pki, .private_keys, .appstoreconnect, .fastlane, .local/share/mkcert/rootCA-key.pem, .acme.sh,
    .step/secrets, .ejson, .secrets
tsh, kinit, vault, bao: .tsh, .vault-token, .vault, .krb5cc*, .config/teleport, .safe, .saferc
ansible, ansible-vault, ansible-playbook, ansible-galaxy: .vault_pass*, .vault-pass*, .ansible_vault*, .ansible/vault*
ansible, ansible-galaxy: .ansible/galaxy_token
knife, puppet, salt: .chef, .puppetlabs/etc/puppet/ssl, .saltrc

aws, sam, cdk, terraform, tofu, eksctl: .aws, .aws-vault, .awsvault, .saml2aws, .aws-sso, .okta*, .boto,
    .elasticbeanstalk
az, func, azd: .azure, .azd/auth, .IdentityService, .local/share/.IdentityService
gcloud, gsutil, bq, firebase: .config/gcloud, .gsutil, .config/configstore, .config/firebase, .bigqueryrc
oci, aliyun, ibmcloud, tccli, cf, qcloud: .oci, .aliyun, .bluemix, .ibmcloud, .tccli, .cf, .qcloudcli, .hwcloud,
    .config/yandex-cloud
doctl, hcloud, linode-cli, scw, vultr, exo, civo: .config/doctl, .config/hcloud, .hcloud, .config/linode-cli,
    .linode-cli, .config/scw, .vultr-cli.yaml, .config/exoscale, .cloudstack.ini, .civo.json
openstack, ovh, upctl: .config/openstack, .openrc, .ovh.conf, .config/upctl.yaml, .config/upcloud
fly, flyctl, netlify, vercel, heroku, railway, render: .fly, .netlify, .config/netlify, .vercel, .now,
    .local/share/com.vercel.cli, .railway/config.json, .render, .config/com.vercel.cli, .config/vercel, .surge
wrangler, cloudflared, ngrok, tailscale: .wrangler, .config/.wrangler, .cloudflared, .cloudflare, .config/ngrok,
    .ngrok*, .config/tailscale
stripe, supabase, pscale, turso, neonctl, atlas: .config/stripe, .supabase/access-token, .config/supabase,
    .config/planetscale, .config/turso, .config/neonctl, .config/atlascli, .config/mongocli, .config/convex, .convex
twilio, sendgrid, shopify, twurl: .twilio-cli, .sendgrid, .config/shopify*, .shopify, .twurlrc, .trc, .plaid-cli,
    .config/segment
terraform, tofu, pulumi, packer, nomad, consul: .terraform.d, .tofu.d, .pulumi/credentials.json, .packer.d, .nomad,
    .consul, .config/infracost, .infracost
kubectl, helm, k9s, argocd, oc, flux: .kube, .config/helm/registry, .config/argocd, .argocd, .minikube, .rancher,
    .k3d, .config/k3d
docker, podman, buildah, skopeo, crane: .docker, .dockercfg, .config/containers, .lima, .colima, .rd, .vagrant.d
rclone, s3cmd, mc, b2, restic, borg: .config/rclone, .rclone.conf, .s3cfg, .s4cfg, .mc, .mcli, .b2_account_info,
    .config/b2, .passwd-s3fs, .config/borg, .config/restic, .restic*, .s3ql, .duplicity, .config/duplicity
: .dropbox, .config/Nextcloud, .config/ownCloud, .config/onedrive, .config/syncthing, .local/state/syncthing,
    .local/share/syncthing, .config/maestral, .megaCmd, .config/insync, .ipfs/config, .ipfs/keystore, .tor,
    .config/Yandex

databricks, snow, snowsql, dbt: .databrickscfg, .databricks, .snowflake, .config/snowflake, .snowsql, .bigquery*
sentry-cli, jf, circleci, travis, bk, datadog-ci: .sentryclirc, .jfrog, .config/jfrog, .circleci, .travis,
    .config/buildkite*, .bk.yaml, .dogrc, .config/datadog, .newrelic, .config/snyk, .snyk, .sonar, .codecov*,
    .launchdarkly
doppler, infisical, akeyless, phase: .doppler, .infisical, .akeyless, .phase, .config/doppler, .keybase,
    .config/keybase
kaggle, wandb, modal, runpodctl, vastai: .kaggle, .config/kaggle, .config/wandb, .modal.toml, .runpod, .vast_api_key,
    .config/vastai, .clearml.conf, .comet.config, .neptune, .mlflow/credentials, .paperspace, .lightning, .polyaxon
huggingface-cli, hf: .huggingface, .cache/huggingface/token, .cache/huggingface/stored_tokens, .config/huggingface,
    .replicate
: .openai, .config/openai, .anthropic, .config/anthropic, .config/io.datasette.llm, .config/mods, .config/shell_gpt,
    .config/fabric, .claude.json, .claude.json.backup*, .config/claude, .config/Claude*, .config/Cursor,
    .config/opencode, .local/share/opencode, .aider, .aider.conf.yml, .config/goose, .config/amp, .local/share/amp,
    .config/crush, .local/share/crush, .crush, .factory, .codeium, .tabnine, .config/TabNine, .supermaven,
    .config/Windsurf, .cody, .config/cody, .groq, .cohere, .mistral, .grok, .ollama/id_ed25519,
    .config/zed/credentials*, .config/Code/User/globalStorage, .config/VSCodium/User/globalStorage, .jupyter,
    .local/share/jupyter/runtime, .config/rstudio, .wakatime.cfg, .local/share/code-server, .config/code-server

twine, poetry, hatch, flit, uv, pip: .pypirc, .config/pypoetry/auth.toml, .local/share/uv/credentials,
    .config/hatch/auth*
conda, anaconda: .conda/*token*, .continuum, .config/binstar, .local/share/binstar, .config/anaconda*,
    .local/share/conda-anaconda*
npm, vsce, ovsx, bower, verdaccio: .vsce, .ovsx, .config/verdaccio, .config/jspm
cargo: .cargo/credentials, .cargo/credentials.toml
gem, bundle: .gem/credentials, .local/share/gem/credentials
mvn, gradle, sbt, lein: .m2/settings-security.xml, .ivy2/.credentials, .sbt/.credentials, .sbt/*/.credentials,
    .sbt/*/sonatype.sbt, .lein/credentials*, .lein/profiles.clj, .config/coursier/credentials.properties,
    .mill/credentials
composer: .composer/auth.json, .config/composer/auth.json
mix, dart, flutter: .hex/hex.config, .config/hex, .pub-cache/credentials.json, .config/dart/pub-*.json,
    .config/flutter
conan, julia, luarocks, cpan-upload: .conan/.conan.db, .conan2/credentials.json, .julia/servers,
    .luarocks/upload_config.lua, .pause
osc, koji, copr, snapcraft, dput: .oscrc, .config/osc, .config/copr, .koji, .fedora*.cert, .config/snapcraft,
    .local/share/snapcraft, .config/flathub, .config/launchpadlib, .launchpadlib, .debusine*, .abuild
svn: .subversion/auth
adb: .android/adbkey

psql, pg_dump, mysql, mariadb: .pgpass, .my.cnf, .mylogin.cnf, .config/pgcli, .config/mycli, .config/usql, .usqlpass
mongosh, redis-cli, cqlsh, influx, clickhouse-client, cockroach: .mongodb, .mongorc.js, .redisclirc, .cassandra,
    .influxdbv2, .clickhouse-client*, .cockroach-certs, .config/litecli, .sqlmap
: .dbeaver*, .local/share/DBeaverData, .config/JetBrains/*/c.kdbx, .config/JetBrains/*/options/security.xml,
    .mysql/workbench, .config/MongoDB*, .config/Postman, .postman, .config/Insomnia, .config/Hoppscotch, .httpie,
    .config/httpie, .bruno

: .smbcredentials, .smbpasswd, .smb, .davfs2/secrets, .vnc, .config/tigervnc, .x2go*, .config/freerdp,
    .config/remmina, .local/share/remmina, .config/rustdesk, .anydesk, .config/teamviewer, .config/filezilla,
    .filezilla, .lftprc, .lftp, .local/share/lftp, .ncftp, .config/wireguard, .config/openvpn*, .openvpn*,
    .config/nordvpn, .config/mullvad*, .config/protonvpn, .cisco, .vpn*, .Xauthority, .ICEauthority, .serverauth*,
    .config/pulse/cookie, .pulse-cookie, .xsession-errors*, .local/share/networkmanagement

: .mozilla, .librewolf, .zen, .waterfox, .floorp, .tor-browser*, .local/share/torbrowser, .config/google-chrome*,
    .config/chromium*, .config/BraveSoftware, .config/microsoft-edge*, .config/vivaldi*, .config/opera*,
    .config/falkon, .local/share/epiphany, .config/qutebrowser, .local/share/qutebrowser, .config/net.imput.helium,
    .config/Arc, .w3m, .links, .elinks, .thunderbird, .config/evolution, .local/share/evolution, .local/share/geary,
    .config/geary, .claws-mail, .config/Mailspring, .config/Signal*, .local/share/signal-cli, .config/Slack,
    .config/slack*, .config/discord*, .local/share/TelegramDesktop, .purple, .config/Element*, .config/teams*,
    .config/Microsoft*, .config/Mattermost, .config/Rocket.Chat, .config/zoom*, .zoom, .weechat, .config/weechat,
    .local/share/weechat, .irssi, .config/hexchat, .config/skype*, .config/WhatsApp*, .config/Zulip, .config/gajim,
    .local/share/gajim, .config/senpai, .config/iamb, .config/matrix*, .config/spotify*, .config/todoist,
    .config/linear, .config/Notion*, snap/firefox, snap/chromium, snap/brave, snap/opera, snap/thunderbird,
    snap/slack, snap/discord, snap/signal-desktop, snap/telegram-desktop, snap/bitwarden, snap/bw, snap/1password,
    snap/keepassxc, snap/postman, snap/insomnia, .var/app, .steam/registry.vdf, .local/share/Steam/config
msmtp, mbsync, offlineimap, mutt, neomutt, git: .msmtprc, .config/msmtp, .mbsyncrc, .config/isyncrc, .offlineimaprc,
    .config/offlineimap, .fetchmailrc, .getmail, .config/getmail, .muttrc, .mutt, .config/mutt, .config/neomutt,
    .neomuttrc, .config/aerc, .config/himalaya, .mailrc

: .bitcoin, .ethereum, .local/share/io.parity.ethereum, .electrum*, .monero, .bitmonero, .shared-ringdb, Monero,
    .litecoin, .dogecoin, .dashcore, .zcash*, .config/solana, .config/Exodus, .exodus, .config/Ledger*,
    .config/@trezor, .config/atomic, .near-credentials, .foundry/keystores, .brownie/accounts, .sparrow,
    .walletwasabi, .armory, .lnd, .aptos, .sui/sui_config, .starknet_accounts, .stellar*, .local/share/polkadot*,
    .cardano*, .config/Daedalus*, .config/MyCrypto, .metamask*, .geth

: .*_history, .history, .histfile, .zhistory, .*_history-*, .*history.sqlite, .zsh_sessions, .bash_sessions,
    .Rhistory, .*_hist, .pdbhistory, .lesshst, .viminfo*, .local/state/lesshst, .local/share/fish/fish_history,
    .local/share/nushell/history*, .config/nushell/history*, .local/state/*history*, .local/state/bash/*history*,
    .local/state/zsh/*history*, .local/state/python/*history*, .local/state/psql/*history*,
    .local/state/sqlite/*history*, .local/state/node/*history*, .local/state/mysql/*history*,
    .local/state/less/*history*, .local/state/nvim/shada, .local/share/nvim/shada, .local/share/atuin,
    .local/share/powershell/PSReadLine, .local/share/mcfly, .local/share/xonsh/*history*, .ipython/*/history.sqlite,
    .wget-hsts, .cache/cliphist, .local/share/*_history, .zdot/.*history, .config/zsh/.*history, .cache/zsh,
    .config/bash/*history, .cache/*history*, .cache/clipboard*, .clipman.json, .local/share/klipper, .config/copyq,
    .local/share/copyq, .cache/gpaste, .local/share/gpaste
"""

_SETTINGS = """
npm, npx, pnpm, yarn, bun, bunx: .npmrc, .config/pnpm/rc, .config/npm/npmrc, .bunfig.toml
yarn: .yarnrc, .yarnrc.yml
mvn, mvnw: .m2/settings.xml
gradle, gradlew: .gradle/gradle.properties, .gradle/init.gradle, .gradle/init.d/*.gradle, .gradle/init.d/*.kts
pip, pip3, pipx, python, python3: .config/pip/pip.conf, .pip/pip.conf, .pydistutils.cfg
uv, poetry, pdm, hatch: .config/uv/uv.toml, .config/pypoetry/config.toml, .config/pdm/config.toml,
    .config/hatch/config.toml
git: .gitconfig, .config/git/config, .gitconfig-*, .gitconfig.local, .config/git/config-*
hg: .hgrc, .config/hg/hgrc
svn: .subversion/servers
cargo: .cargo/config.toml, .cargo/config
composer: .composer/config.json, .config/composer/config.json
nuget, dotnet: .nuget/NuGet/NuGet.Config, .config/NuGet/NuGet.Config, .nuget/config/*.config
gem, bundle, bundler: .bundle/config, .gemrc
cabal, stack, lein, sbt: .cabal/config, .config/cabal/config, .stack/config.yaml, .sbt/repositories
conda, mamba, anaconda: .condarc, .conda/.condarc, .conda/condarc, .config/conda/.condarc, .mambarc
conan: .conan2/remotes.json, .conan/remotes.json
curl, wget, http: .curlrc, .config/curlrc, .wgetrc, .config/wget/wgetrc, .aria2/aria2.conf, .config/aria2/aria2.conf
terraform, tofu: .terraformrc, .tofurc
helm: .config/helm/repositories.yaml
aws, sam, cdk, terraform: .aws/config
dbt: .dbt/profiles.yml
psql, isql: .pg_service.conf, .odbc.ini, .psqlrc
ansible, ansible-playbook: .ansible.cfg
dput, debsign: .dput.cf, .devscripts
gitlab: .python-gitlab.cfg
: .pam_environment, .config/environment.d/*.conf, .env, .env.*, .Renviron, .config/mise/config.toml,
    .config/systemd/user/*.service, .config/systemd/user/*.service.d/*.conf, .config/systemd/user.conf
"""

_SCRIPTS = """
.bashrc .bash_profile .bash_login .bash_aliases .bash_logout .bashrc.d/* .profile
.zshrc .zshenv .zprofile .zlogin .zlogout .config/zsh/.z* .config/zsh/*.zsh .oh-my-zsh/custom/*.zsh
.kshrc .mkshrc .cshrc .tcshrc .login .logout .exports .config/fish/config.fish .config/fish/fish_variables
.config/fish/conf.d/*.fish .config/fish/functions/*.fish .config/nushell/*.nu .envrc .config/direnv/direnvrc
.xprofile .xinitrc .xserverrc .xsession .xsessionrc .config/plasma-workspace/env/*.sh
"""
# Scripts that shells and sessions run on startup. They are shown if they contain no secret.
SCRIPTS = frozenset(_SCRIPTS.split())
_MOVED = """
XDG_CONFIG_HOME=~/.config XDG_DATA_HOME=~/.local/share XDG_STATE_HOME=~/.local/state XDG_CACHE_HOME=~/.cache
GNUPGHOME=~/.gnupg CARGO_HOME=~/.cargo GRADLE_USER_HOME=~/.gradle NPM_CONFIG_USERCONFIG=~/.npmrc
npm_config_userconfig=~/.npmrc PIP_CONFIG_FILE=~/.pip/pip.conf AWS_SHARED_CREDENTIALS_FILE=~/.aws/credentials
AWS_CONFIG_FILE=~/.aws/config KUBECONFIG=~/.kube DOCKER_CONFIG=~/.docker REGISTRY_AUTH_FILE=~/.dockercfg
NETRC=~/.netrc PGPASSFILE=~/.pgpass PGSERVICEFILE=~/.pg_service.conf GH_CONFIG_DIR=~/.config/gh
GLAB_CONFIG_DIR=~/.config/glab-cli GIT_CONFIG_GLOBAL=~/.gitconfig AZURE_CONFIG_DIR=~/.azure
CLOUDSDK_CONFIG=~/.config/gcloud GOOGLE_APPLICATION_CREDENTIALS=~/.config/gcloud BOTO_CONFIG=~/.boto
OCI_CLI_CONFIG_FILE=~/.oci PASSWORD_STORE_DIR=~/.password-store SOPS_AGE_KEY_FILE=~/.config/sops
VAULT_TOKEN_PATH=~/.vault-token ANSIBLE_VAULT_PASSWORD_FILE=~/.vault_pass RCLONE_CONFIG=~/.rclone.conf CURL_HOME=~
ZDOTDIR=~ WGETRC=~/.wgetrc CONDARC=~/.condarc COMPOSER_HOME=~/.composer BUNDLE_USER_CONFIG=~/.bundle/config
HEX_HOME=~/.hex TF_CLI_CONFIG_FILE=~/.terraformrc CODEX_HOME=~/.codex CLAUDE_CONFIG_DIR=~/.claude
HF_HOME=~/.cache/huggingface HF_TOKEN_PATH=~/.cache/huggingface/token KAGGLE_CONFIG_DIR=~/.kaggle
JUPYTER_CONFIG_DIR=~/.jupyter XAUTHORITY=~/.Xauthority HISTFILE=~/.bash_history DOTNET_CLI_HOME=~
MYSQL_HISTFILE=~/.mysql_history PSQL_HISTORY=~/.psql_history
"""
_PLAIN_FOR_CURL = (
    "proxy|noproxy|cacert|capath|insecure|location|silent|show-error|retry|retry-delay|connect-timeout|max-time"
    "|user-agent|compressed|ipv4|ipv6|fail|progress-bar|k|L|s|S|A|x"
)
_PLAIN_FOR_WGET = (
    "timeout|tries|waitretry|wait|https?_proxy|ftp_proxy|no_proxy|use_proxy|check_certificate|ca_certificate"
    "|user_?agent|progress|robots|continue|timestamping|dirstruct|adjust_extension|follow_ftp"
)
# Keyed by the place of a settings file: a pattern for the names of values that are not secret. Any other value may be a
# secret.
PLAIN_NAMES: Mapping[str, str] = {
    **dict.fromkeys((".curlrc", ".config/curlrc"), _PLAIN_FOR_CURL),
    **dict.fromkeys((".wgetrc", ".config/wget/wgetrc"), _PLAIN_FOR_WGET),
    ".bundle/config": (
        "BUNDLE_(?:JOBS|PATH|RETRY|TIMEOUT|WITH|WITHOUT|FROZEN|DEPLOYMENT|BIN|GEMFILE|CACHE_.*|CLEAN|SILENCE_.*"
        "|BUILD__.*|LOCAL__.*|MIRROR__.*|FORCE_RUBY_PLATFORM|IGNORE_.*|PREFER_PATCH|SSL_CA_CERT|SSL_VERIFY_MODE)"
    ),
}
# Keyed by environment variable: the place in the home folder whose rules apply to the path in the variable. The
# variable may contain several paths, separated by colons. An empty place stands for the home folder.
MOVED: Mapping[str, str] = {
    variable: place.removeprefix("~").lstrip("/")
    for variable, _, place in (each.partition("=") for each in _MOVED.split())
}


def _table() -> dict[str, SecretPlace]:
    table = {folder: SecretPlace(frozenset(), is_settings=False) for folder in AGENT_FOLDERS}
    table |= dict.fromkeys(SCRIPTS, SecretPlace(frozenset(), is_settings=True))
    for text, is_settings in ((_STORES, False), (_SETTINGS, True)):
        for line in text.replace(",\n    ", ", ").splitlines():
            programs, _, places = line.partition(":")
            place = SecretPlace(frozenset(filter(None, programs.split(", "))), is_settings)
            table |= dict.fromkeys(filter(None, places.strip().split(", ")), place)
    return table


HOME_PLACES: Mapping[str, SecretPlace] = _table()  # the whole table, keyed by place
