"""Files with secrets as programs leave them in a home folder. They follow the programs' manuals, not our own table."""

from __future__ import annotations

from collections.abc import Mapping

_PURE = """
.ssh/id_rsa .ssh/id_ed25519 .ssh/config .gnupg/private-keys-v1.d/A.key .gnupg/secring.gpg .putty/sshhostkeys
.netrc _netrc .authinfo .git-credentials .config/git/credentials .config/hub .config/gh/hosts.yml
.config/glab-cli/config.yml .config/tea/config.yml .gist .jira.d/config.yml .config/github-copilot/apps.json
.config/github-copilot/hosts.json .aws/credentials .aws/sso/cache/x.json .aws/cli/cache/y.json .saml2aws .boto
.s3cfg .elasticbeanstalk/config.yml .azure/msal_token_cache.json .azure/accessTokens.json
.azure/azureProfile.json .config/gcloud/credentials.db .config/gcloud/application_default_credentials.json
.config/gcloud/legacy_credentials/a/adc.json .oci/config .oci/key.pem .aliyun/config.json .bluemix/config.json
.cf/config.json .config/doctl/config.yaml .config/hcloud/cli.toml .config/linode-cli .config/scw/config.yaml
.config/openstack/clouds.yaml .ovh.conf .civo.json .config/exoscale/exoscale.toml .fly/config.yml
.netlify/config.json .config/netlify/config.json .local/share/com.vercel.cli/auth.json .config/heroku/x
.railway/config.json .wrangler/config/default.toml .config/.wrangler/config/default.toml .cloudflared/cert.pem
.config/ngrok/ngrok.yml .ngrok2/ngrok.yml .config/stripe/config.toml .supabase/access-token
.config/turso/settings.json .config/planetscale/access-token .config/configstore/firebase-tools.json
.config/configstore/update.json .twurlrc .terraform.d/credentials.tfrc.json .pulumi/credentials.json
.config/infracost/credentials.yml .chef/user.pem .vault-token .vault_pass .vault_pass.txt
.ansible/galaxy_token .kube/config .kube/cache/x .config/helm/registry/config.json .config/argocd/config
.docker/config.json .dockercfg .config/containers/auth.json .minikube/profiles/m/client.key .tsh/keys/x
.config/rclone/rclone.conf .rclone.conf .mc/config.json .b2_account_info .passwd-s3fs .config/borg/keys/k
.dropbox/x.dbx .config/Nextcloud/nextcloud.cfg .config/syncthing/key.pem .local/state/syncthing/key.pem
.databrickscfg .snowsql/config .snowflake/connections.toml .sentryclirc .jfrog/jfrog-cli.conf.v6
.circleci/cli.yml .travis/config.yml .config/configstore/snyk.json .doppler/.doppler.yaml
.infisical/infisical-config.json .wakatime.cfg .kaggle/kaggle.json .config/wandb/settings .huggingface/token
.cache/huggingface/token .cache/huggingface/stored_tokens .modal.toml .replicate/token .clearml.conf
.comet.config .ollama/id_ed25519 .config/io.datasette.llm/keys.json .codex/auth.json .gemini/oauth_creds.json
.qwen/oauth_creds.json .claude/.credentials.json .claude.json .cursor/mcp.json .config/opencode/x.json
.local/share/opencode/auth.json .aider.conf.yml .config/Claude/claude_desktop_config.json .codeium/config.json
.continue/config.json .openai/key .anthropic/key .config/shell_gpt/.sgptrc .config/goose/secrets.yaml
.copilot/config.json .config/Code/User/globalStorage/state.vscdb .config/Cursor/User/globalStorage/state.vscdb
.pypirc .config/pypoetry/auth.toml .local/share/uv/credentials/credentials.toml .cargo/credentials
.cargo/credentials.toml .gem/credentials .config/composer/auth.json .composer/auth.json .hex/hex.config
.config/dart/pub-credentials.json .pub-cache/credentials.json .m2/settings-security.xml .sbt/.credentials
.ivy2/.credentials .sbt/1.0/sonatype.sbt .sbt/1.0/.credentials .lein/credentials.clj.gpg .lein/profiles.clj
.conan2/credentials.json .julia/servers/pkg.example/auth.toml .vsce .oscrc .config/osc/oscrc .config/copr
.pause .conda/aau_token .subversion/auth/svn.simple/a .config/snapcraft/snapcraft.cfg .android/adbkey .pgpass
.my.cnf .mylogin.cnf .config/usql/x .influxdbv2/configs .cassandra/credentials .mongorc.js
.clickhouse-client/config.xml .local/share/DBeaverData/workspace6/General/.dbeaver/credentials-config.json
.config/JetBrains/IntelliJIdea2025.1/c.kdbx .config/Postman/x .config/Insomnia/x .httpie/sessions/h/s.json
.config/httpie/sessions/h/s.json .password-store/a.gpg .local/share/gopass/a .config/op/config
.config/Bitwarden/data.json .config/rbw/config.json .local/share/keyrings/login.keyring
.local/share/kwalletd/w.kwl .config/keepassxc/k.ini .local/share/lpass/x .local/share/python_keyring/k.cfg
.config/sops/age/keys.txt .config/age/key.txt .pki/nssdb/key4.db .local/share/mkcert/rootCA-key.pem
.step/secrets/root_ca_key .smbcredentials .vnc/passwd .config/remmina/a .local/share/remmina/a.remmina
.config/filezilla/sitemanager.xml .lftp/rl .config/wireguard/w.conf .davfs2/secrets .Xauthority .ICEauthority
.config/pulse/cookie .config/rustdesk/RustDesk.toml .mozilla/firefox/p/logins.json .librewolf/p/key4.db
.config/google-chrome/Default/Cookies .config/google-chrome-beta/Default/Cookies .config/chromium/Default/x
.config/BraveSoftware/x .config/microsoft-edge-dev/x .config/vivaldi/x .config/opera/x snap/firefox/common/k
.var/app/org.mozilla.firefox/x .thunderbird/p/logins.json .config/evolution/x .local/share/evolution/x
.config/qutebrowser/x .msmtprc .config/msmtp/config .mbsyncrc .config/isyncrc .offlineimaprc .fetchmailrc
.muttrc .mutt/muttrc .config/neomutt/neomuttrc .config/aerc/accounts.conf .config/himalaya/config.toml .mailrc
.config/Signal/config.json .config/Slack/x .config/discord/x .config/discordcanary/x
.local/share/TelegramDesktop/tdata/k .purple/accounts.xml .config/Element/x .config/weechat/sec.conf
.weechat/sec.conf .irssi/config .config/hexchat/x .config/teams-for-linux/x .config/zoomus.conf
.bitcoin/wallet.dat .ethereum/keystore/k .electrum/wallets/w .config/solana/id.json .config/Exodus/x .monero/w
.near-credentials/k .foundry/keystores/k .local/share/io.parity.ethereum/keys/k .lnd/x .bash_history
.zsh_history .python_history .node_repl_history .psql_history .mysql_history .sqlite_history .irb_history
.rediscli_history .local/share/fish/fish_history .local/state/bash/history .local/state/zsh/history
.local/state/psql_history .histfile .zhistory .lesshst .viminfo .local/share/atuin/history.db
.local/state/nvim/shada/main.shada .local/share/powershell/PSReadLine/ConsoleHost_history.txt
.local/share/nushell/history.txt .config/nushell/history.txt .ipython/profile_default/history.sqlite .Rhistory
.julia_history .php_history .config/zsh/.zsh_history .zsh_sessions/a.history
.local/share/jupyter/runtime/k.json .jupyter/jupyter_server_config.json
"""

PURE = tuple(_PURE.split())
"""Files that hold only secrets, or nothing that a command needs."""

MIXED: Mapping[str, str] = {
    ".npmrc": (
        "; old: //r/:_authToken=CANARY\n"
        "registry=https://registry.example/STAYS\n"
        "//registry.example/:_authToken=CANARY\n"
        "//registry.example/:_password=CANARY\n"
        "//old.example/:username=bob\n"
        "_auth = CANARY\n"
        '//a.example/:_auth="CANARY"\n'
        'key="-----BEGIN KEY-----\\nCANARY\\n"\n'
        "always-auth=true\n"
        "proxy=http://bob:CANARY@proxy.example:3128/\n"
        "@scope:registry=https://npm.example/STAYS\n"
        "email=STAYS@example.org\n"
        "//b.example/:_authToken=${NPM_TOKEN_STAYS}\n"
    ),
    ".yarnrc": ('registry "https://yarn.example/STAYS"\n"//yarn.example/:_authToken" "CANARY"\n_password CANARY\n'),
    ".yarnrc.yml": (
        "nodeLinker: STAYS\n"
        "npmAuthToken: CANARY\n"
        "npmScopes:\n"
        "  mine:\n"
        '    npmRegistryServer: "https://STAYS.example"\n'
        '    npmAuthIdent: "bob:CANARY"\n'
        "    npmAlwaysAuth: true\n"
        "npmRegistries:\n"
        '  "//r.example": { npmAuthToken: CANARY, npmAlwaysAuth: true }\n'
        '  "//s.example":\n'
        "    npmAuthToken:\n"
        "      CANARY\n"
        'httpProxy: "http://u:CANARY@p.example"\n'
    ),
    ".bunfig.toml": ('[install]\ncache = "STAYS"\nregistry = { url = "https://r.example", token = "CANARY" }\n'),
    ".config/pnpm/rc": ("store-dir=/STAYS\n//r.example/:_authToken=CANARY\n"),
    ".m2/settings.xml": (
        "<?xml version='1.0'?>\n"
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0">\n'
        "<!-- <password>CANARY</password> -->\n"
        "<mirrors><mirror><id>m</id><url>https://mirror.example/STAYS</url><mirrorOf>*</mirrorOf></"
        "mirror></mirrors>\n"
        "<servers><server><id>s</id><username>bob</username><password>CANARY</password>\n"
        "<privateKey>/x</privateKey><passphrase><![CDATA[CANARY]]></passphrase></server>\n"
        "<server><id>gitlab</id><configuration><httpHeaders><property><name>Private-Token</name>\n"
        "<value>CANARY</value></property></httpHeaders></configuration></server></servers>\n"
        "<proxies><proxy><host>p.example</host><password>\n"
        "  CANARY\n"
        "</password></proxy></proxies>\n"
        "<profiles><profile><id>p</id><properties><sonar.token>CANARY</sonar.token><url>https://u:C"
        "ANARY@h.example/</url></properties></profile></profiles></settings>\n"
    ),
    ".gradle/gradle.properties": (
        "org.gradle.jvmargs=-Xmx2g -Dx.keyPassword=CANARY\n"
        "artifactoryPassword=CANARY\n"
        "nexusPwd: CANARY\n"
        "signing.password = CANARY\n"
        "systemProp.https.proxyPassword=CANARY\n"
        "github.token=CANARY\n"
        "android.useAndroidX=true\n"
        "ossrhUsername=STAYS\n"
    ),
    ".config/pip/pip.conf": (
        "[global]\n"
        "index-url = https://bob:CANARY@pypi.example/STAYS/simple\n"
        "extra-index-url =\n"
        "    https://CANARY@a.example/s\n"
        "    https://__token__:CANARY@b.example/STAYS\n"
        "timeout = 60\n"
        "trusted-host = STAYS.example\n"
    ),
    ".pip/pip.conf": ("[global]\nindex-url = https://STAYS.example/simple?token=CANARY\n"),
    ".gitconfig": (
        "[user]\n"
        "\tname = Bob STAYS\n"
        "\temail = bob@example.org\n"
        "\tsigningkey = STAYS99\n"
        "[github]\n"
        "\toauth-token = CANARY\n"
        '[url "https://CANARY@github.example/"]\n'
        "\tinsteadOf = https://github.example/\n"
        "[credential]\n"
        "\thelper = STAYS\n"
        '[credential "https://x.example"]\n'
        '\thelper = "!f() { echo username=bob; echo \\"password=CANARY\\"; }; f"\n'
        '[http "https://y.example"]\n'
        "\textraHeader = Authorization: Bearer CANARY\n"
        "[sendemail]\n"
        "\tsmtppass = CANARY\n"
        "\tsmtpServer = STAYS.example\n"
        "[alias]\n"
        "\tco = checkout STAYS\n"
        "\ttokens = log\n"
        '[http "https://z.example"]\n'
        "\textraHeader = X-Foo: STAYS\n"
    ),
    ".config/git/config": ("[user]\n\tname = STAYS\n[hub]\n\ttoken = CANARY\n[core]\n\tpager = STAYS\n"),
    ".cargo/config.toml": (
        "[registries.mine]\n"
        'index = "sparse+https://STAYS.example/"\n'
        'token = "CANARY"\n'
        "[registry]\n"
        'global-credential-providers = ["cargo:STAYS"]\n'
        "[http]\n"
        'proxy = "http://u:CANARY@p.example"\n'
        "[env]\n"
        'API_KEY = { value = "CANARY", force = true }\n'
    ),
    ".nuget/NuGet/NuGet.Config": (
        '<configuration><packageSources><add key="mine" value="https://STAYS.example/v3" /></packag'
        "eSources>\n"
        '<packageSourceCredentials><mine><add key="Username" value="bob" /><add key="ClearTextPassw'
        'ord" value="CANARY" /></mine></packageSourceCredentials><apikeys><add key="https://STAYS.e'
        'xample/v3" value="CANARY" /></apikeys></configuration>'
    ),
    ".config/composer/config.json": (
        '{"config": {"github-oauth": {"github.com": "CANARY"}}, "repositories": {"a": "STAYS"}}'
    ),
    ".bundle/config": (
        '---\nBUNDLE_JOBS: "STAYS"\nBUNDLE_GEMS__EXAMPLE__COM: "bob:CANARY"\nBUNDLE_RUBYGEMS__PKG: CANARY\n'
    ),
    ".gemrc": (":sources:\n- https://bob:CANARY@gems.example/\n:rubygems_api_key: CANARY\n:verbose: STAYS\n"),
    ".condarc": (
        "channels:\n"
        "  - https://conda.example/t/CANARY-canary-1/STAYS\n"
        "  - https://u:CANARY@c.example/x\n"
        "ssl_verify: true\n"
        "proxy_servers:\n"
        "  http: http://u:CANARY@p.example:8080\n"
        "envs_dirs: [/STAYS]\n"
    ),
    ".curlrc": (
        'user-agent = "STAYS"\nuser = "bob:CANARY"\n-u bob:CANARY\nheader = "X-Thing: CANARY"\nproxy-user bob:CANARY\n'
    ),
    ".wgetrc": ("timeout = 9 STAYS\nhttp_password = CANARY\npassword=CANARY\nheader = X-Thing: CANARY\n"),
    ".terraformrc": ('credentials "app.terraform.io" {\n  token = "CANARY"\n}\n'),
    ".config/helm/repositories.yaml": (
        "repositories:\n- name: STAYS\n  username: bob\n  password: CANARY\n  url: https://h.example\n"
    ),
    ".aws/config": ("[default]\nregion = STAYS\naws_secret_access_key = CANARY\naws_session_token = CANARY\n"),
    ".dbt/profiles.yml": (
        "p:\n"
        "  outputs:\n"
        "    dev:\n"
        "      host: STAYS\n"
        "      password: |\n"
        "        CANARY\n"
        "        CANARY\n"
        "      port: 5432\n"
    ),
    ".bashrc": (
        "alias ll='ls'\n"
        "export OPENAI_API_KEY=CANARY\n"
        "export DB_PASSWORD='CANARY CANARY'\n"
        'MYTOKEN="CANARY"; export MYTOKEN\n'
        "export DATABASE_URL=postgres://bob:CANARY@db.example/x\n"
        "PATH=$PATH:/x\n"
    ),
    ".xinitrc": ("export API_TOKEN=CANARY\nexec x\n"),
    ".python-gitlab.cfg": ("[x]\nurl = https://STAYS.example\nprivate_token = CANARY\n"),
    ".config/systemd/user/x.service": ("[Service]\nEnvironment=TOKEN=CANARY\nExecStart=/STAYS\n"),
    ".config/fish/config.fish": ("set -gx EDITOR vi\nset -gx GITHUB_TOKEN CANARY\n"),
    ".env": ("HOST=STAYS\nSECRET_KEY=CANARY\nexport STRIPE_KEY=CANARY\n"),
    ".config/environment.d/10-x.conf": ("LANG_X=STAYS\nMY_API_TOKEN=CANARY\n"),
    ".Renviron": ("R_LIBS=STAYS\nGITHUB_PAT=CANARY\n"),
    ".config/uv/uv.toml": ('[[index]]\nurl = "https://bob:CANARY@STAYS.example/simple"\n'),
    ".config/pypoetry/config.toml": ('[virtualenvs]\npath = "STAYS"\n[pypi-token]\npypi = "CANARY"\n'),
    ".pg_service.conf": ("[s]\nhost=STAYS\npassword=CANARY\n"),
    ".hgrc": ("[ui]\nusername = STAYS\n[auth]\nx.prefix = https://h.example\nx.password = CANARY\n"),
    ".cabal/config": ("jobs: STAYS\npassword: CANARY\npassword-command: STAYS\n"),
}
"""Settings that contain secrets. Every CANARY is a secret, and every STAYS is not."""

_ODD = r"""
.m2/settings.xml
  <a><password><!-- x -->S</password></a>
  <a><p><value>S</value><name>token</name></p></a>
  <a><?token S?></a>
  <a><password>x<b/>S</password></a>
  <a key='token' value='S'/>
  <a><![CDATA[token=S]]></a>
  <a>token=S</a>
  <a><entry key="token">S</entry></a>
  <a><password>S</a>
.composer/config.json
  {"token": "S", "token": ""}
.gradle/init.gradle
  password 'S'
  setPassword("S")
  name = "Private-Token"¶value = "S"
  mavenPassword S
  credentials {¶ x 'S' }
  password = '''¶S'''
.pam_environment
  TOKEN DEFAULT=S
  TOKEN OVERRIDE="S"
.bashrc
  alias d='x --token "S"'
  export TOKEN=$(cat <<E¶S¶E¶)
  TOKEN+=S
  declare -A TOKEN¶TOKEN[x]=S
  read TOKEN <<< S
  printf -v TOKEN S
  if true; then setenv TOKEN S; fi
  x; set -gx TOKEN S
  TOKEN=a\¶S
  TOKEN="a¶S"
  TOKEN=a'b'"c¶S"
  TOKEN=`x¶echo S`
  export http_proxy=u:S@host
  x_proxy='u:S@host'
  TOKENNBSP=S
  http_proxy=http://u:a@S@host/
  alias x='mysql -pS'
  export A=1 TOKEN=S
  TOKEN=(a¶S)
  alias d="curl -H 'Authorization: Bearer S'"
  f() { TOKEN=S; }
  A=1 # token S
  : ${TOKEN:=S}
  declare -A M=([token]=S [x]=1); M[secret]=S
  m+=(token S)
  export API_TO\¶KEN=S
  export A=b \¶  TOKEN=S
  alias v="vault login S"
  alias s="echo S | chpasswd"
  echo "S" | docker login -u me --password-stdin
  echo "machine x login y password S"
  git config --global github.token S
  eval "TOKEN=S"
  export "TOKEN=S"
  TOKEN=a"S"
  TOKEN="¶S"
  TOKEN=";S"
  TOKEN=$'a\'S'
  TOKEN=a # b S
  x=a # TOKEN S
  x "$TOKEN" token: S
  if x; then TOKEN=S; fi
  TOKEN=$(echo "S")
  cat <<E¶token S¶E
.zshrc
  typeset -A m; m[token]=S
  () { local token=S }
  zstyle ":x" token S
  m=(token S x y)
.cshrc
  if ( 1 ) setenv TOKEN S
  setenv FOO bar; setenv TOKEN S
  set token = S
  set token = (a S)
  alias x 'setenv TOKEN S'
.config/fish/config.fish
  set -gx FOO bar; set -gx TOKEN S
  if status is-interactive; set -gx TOKEN S; end
  test -z "$A"; and set -x -g TOKEN S
  set --export --global TOKEN a S
  set -gx TOKEN (echo S)
  set -gx TOKEN (echo "S")
  set TOKEN 'S'
.config/fish/fish_variables
  SETUVAR --export TOKEN:S
.config/nushell/*.nu
  $env.TOKEN = "S"
  $env.TOKEN = 'S'
.config/systemd/user/*.service
  [Unit]¶Environment=TOKEN=S
  [Unit]¶Environment="A=b" "TOKEN=S"
  [Unit]¶ExecReload=/x --token S
.python-gitlab.cfg
  [x]¶private_token = S
.gradle/gradle.properties
  org.gradle.jvmargs=-Xmx2g -Djavax.net.ssl.trustStorePassword=S
  a=-Dtoken="S b"
.cargo/config.toml
  [registries.x]¶credential-provider=["cargo:token-from-stdout","echo","S"]
.yarnrc.yml
  token: a¶# b¶  S
  ? token¶: S
  { token: a,¶ b: S }
  "tok\u0065n": S
  token: |¶¶  S¶
  token: a¶  S
  token: 'a¶S'
  - name: TOKEN¶  value: S
  env: [{name: TOKEN, value: S}]
  token: "a\¶  S"
  tokens:¶- S¶- S
  a: b # token S
  token: &x S
  a: {token:¶ S}
  !!str token: S
  token :¶  - a¶  -¶    S
.psqlrc
  \setenv PGPASSWORD S
  \set token S
.curlrc
  -sSu a:S
  -ua:S
  -H x:S
  oauth2-bearer S
  cookie a=S
  url = https://u:S@h
  data S
  -sd S
  cert a:S
.wgetrc
  post_data = S
  body-data=S
  header = S
  passwd = S
  referer=S
.bundle/config
  BUNDLE_LOCALHOST: "u:S"
  BUNDLE_A__B: S
  BUNDLE_X:¶  S
.condarc
  channels:¶  - https://h/t/S
  channels: [https://h/t/S/x]
  - https://h/t/S-1
.npmrc
  //h/:_authToken[]=S
  _auth=a'¶S
  //h/:_authToken = "a" S
  _authToken=a\¶S
  _auth=[a¶S]
  token:a=S
.gitconfig
  [hub "token"] x = S
  [x] token = S
  [auth]¶ x = S
  [http]¶ extraHeader = X-Api-Key: S
  [http]¶ extraHeader = Authorization: Basic S
  [http "https://h"]¶ extraHeader = Cookie: S
  [core]¶ sshCommand = sshpass -p S ssh
  [alias]¶ token = "!curl -u me:S h"
  password-command = echo S
  [a]¶ b = c ; token S
.config/uv/uv.toml
  a = 'u:S@h'
  a = 'https://u:a@S@h'
  a = 'b' # token S
  [[a]]¶key = 'token'¶value = 'S'
  token = S
"""


def odd_forms() -> list[tuple[str, str]]:
    """Return rare but valid forms of secrets, each with the path of its file. Every S is a secret."""
    forms: list[tuple[str, str]] = []
    path = ""
    for line in _ODD.strip().splitlines():
        if line.startswith("  "):
            forms.append((path, line[2:].replace("¶", "\n").replace("NBSP", "\u00a0")))
        else:
            path = line
    return forms
