"""Names and texts that are treated as secrets."""

from __future__ import annotations

import pytest

from tests.linear_time import SIZES, TextMaker, assert_redacted_in_linear_time
from tests.tables import each_of
from tools.text.secrets import HIDDEN, has_secret, is_secret_name, redact, without_userinfo


@pytest.mark.requirement("secrets.values")
@each_of(
    "name",
    [
        *("token", "apiKey", "dbPassword", "MYTOKENS", "x-auth", "private_key", "CREDS", "CLIENT_CERT", "cookie"),
        *("MYSQL_PWD", "PGPASS", "dbPwd", "OPENAI_PW", "--pw", "bearer"),
    ],
)
def test_names_of_secrets_are_recognised(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.requirement("secrets.values")
@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "KEYBOARD", "GIT_AUTHOR_NAME", "SSL_CERT_FILE", "PIP_CERT", "file_path", "old_string", "PWD"),
        *("OLDPWD", "PWD_FILE", "POWER", "pwd"),
    ],
)
def test_other_names_are_not_taken_for_secrets(name: str) -> None:
    assert not is_secret_name(name)


SECRETS = [
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 9,
    "xoxb-123456789012-abcdefghijkl",
    "sk_live_" + "4eC39HqLyjWD",
    "AIza" + "SyA1b2" * 6,
    "sk-proj-" + "abcd1234" * 4,
    "sk-ant-api03-" + "abcd1234" * 4,
    "glpat-" + "abcd1234" * 3,
    "npm_" + "abcd1234" * 5,
]


@pytest.mark.requirement("secrets.values")
@pytest.mark.parametrize("secret", SECRETS)
def test_known_formats_of_secrets_are_hidden_and_nothing_else(secret: str) -> None:
    assert redact(f"before {secret}") == f"before {HIDDEN}"
    assert has_secret(f"x={secret}")


@pytest.mark.requirement("secrets.values")
@each_of(
    ("text", "expected"),
    [
        ("https://me:word@host/x", f"https://{HIDDEN}@host/x"),
        ("Authorization: Bearer abcdef", f"Authorization: Bearer {HIDDEN}"),
        ("mysql --password hunter22 -x", f"mysql --password {HIDDEN} -x"),
        ('{"api_key": "abcdef"}', f'{{"api_key": "{HIDDEN}"}}'),
        ("PASSWORD=hunter22 make", f"PASSWORD={HIDDEN} make"),
        ("X_SECRET='a b c' make", f"X_SECRET='{HIDDEN}' make"),
        ('DB_PASS="a b" make', f'DB_PASS="{HIDDEN}" make'),
        ("curl -u me:word h", f"curl -u me:{HIDDEN} h"),
        ("curl --user 'me:a word' h", f"curl --user 'me:{HIDDEN}' h"),
        ("curl -b sid=word h", f"curl -b {HIDDEN} h"),
        ("curl --cookie 'a=b; c=d' h", f"curl --cookie '{HIDDEN}' h"),
        ("curl -H 'Cookie: a=bcd; c=d' h", f"curl -H 'Cookie: {HIDDEN}' h"),
        ("mysql -uroot -pword db", f"mysql -uroot -p{HIDDEN} db"),
        ("sshpass -p 'a word' ssh h", f"sshpass -p '{HIDDEN}' ssh h"),
        ("openssl enc -k word -in f", f"openssl enc -k {HIDDEN} -in f"),
        ("openssl rsa -passin pass:word", f"openssl rsa -passin pass:{HIDDEN}"),
        ("redis-cli -a word", f"redis-cli -a {HIDDEN}"),
        ("docker login -u me -p word", f"docker login -u me -p {HIDDEN}"),
        ("Server=x;Pwd=hunter22;", f"Server=x;Pwd={HIDDEN};"),
        ("UID=sa;PWD=hunter22;", f"UID=sa;PWD={HIDDEN};"),
        ("plink -pw hunter22 h", f"plink -pw {HIDDEN} h"),
        ("x --pw=hunter22 --bearer hunter22", f"x --pw={HIDDEN} --bearer {HIDDEN}"),
        ("tool -phunter22 x", f"tool -p{HIDDEN} x"),
        ("tool -P'hunter22!' x", f"tool -P'{HIDDEN}' x"),
        ("tool --passwordhunter22 -tokenhunter22", f"tool --password{HIDDEN} -token{HIDDEN}"),
        ("tool --password=word --pass=word", f"tool --password={HIDDEN} --pass={HIDDEN}"),
        ("xfreerdp /p:hunter22", f"xfreerdp /p:{HIDDEN}"),
        ("mysql \\\n -pword db", f"mysql \\\n -p{HIDDEN} db"),
        ("curl -sSume:word h", f"curl -sSume:{HIDDEN} h"),
        ("curl -su me:word h", f"curl -su me:{HIDDEN} h"),
        ("MYSQL_PWD=hunter22 mysql", f"MYSQL_PWD={HIDDEN} mysql"),
        ("aws configure set aws_secret_access_key word", f"aws configure set aws_secret_access_key {HIDDEN}"),
    ],
)
def test_only_the_secret_part_of_a_text_is_hidden(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected


@pytest.mark.requirement("secrets.values")
@pytest.mark.parametrize(
    "text",
    [
        "git clone ssh://git@host/x",
        "the secret sauce is a token of love",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "sk-short, tokenizer, password",
        "docker run -p 8080:80 x; mkdir -p a/b; curl -k h; sort --key=2",
        "mysql -p",
        "ssh -p2222 h; nmap -p1-1000,8080 h; docker run -p8080:80 -p127.0.0.1:81:81 x; patch -p1; ps -p1234567",
        "perl -pi.bak -e x; pytest -pno:cacheprovider; tsc -psrc/tsconfig2.json; tar -pxzf a.tgz; gradle -Pv=1.2.3",
        "PWD=/srv/data make; PWD=$HOME; cd $PWD; pwd; OLDPWD=/srv/data",
        "e" * 64,
    ],
)
def test_texts_without_secrets_stay_unchanged(text: str) -> None:
    assert redact(text) == text


@pytest.mark.requirement("secrets.values")
def test_an_address_loses_its_user() -> None:
    assert without_userinfo("http://a:b@host:1/p?x=y@z") == "http://host:1/p?x=y@z"


REPEATED: list[TextMaker] = [
    lambda n: "-----BEGIN PRIVATE KEY-----" * n,
    lambda n: "-eyJaaaaaaaaa." * n,
    lambda n: "eyJ" * n,
    lambda n: "://a:" * n,
    lambda n: "://" + "a" * n,
    lambda n: "token=" * n,
    lambda n: "-password " * n,
    lambda n: "authorization: " * n,
    lambda n: "sk-" * n,
    lambda n: "SG.aaaaaaaaaaaaaaaaa." * n,
    lambda n: "mysql -p " * n,
    lambda n: "=-p1" * n,
    lambda n: "-p1" + "a" * n,
    lambda n: "mysql " + "\\x" * n,
    lambda n: "mysql -p'" * n,
    lambda n: "A_KEY=" * n,
    lambda n: "X_KEY='a" + "\\" * n,
    lambda n: "-u a:" * n,
    lambda n: "-b a" * n,
    lambda n: "set secret " * n,
    lambda n: "cookie: " * n,
    lambda n: 'password="' * n,
    lambda n: "pwd=" * n,
    lambda n: "pwd " * n,
    lambda n: "-pw " * n,
]


@pytest.mark.requirement("rules.linear")
@pytest.mark.parametrize("size", SIZES)
def test_hostile_texts_are_read_in_linear_time(size: int) -> None:
    assert_redacted_in_linear_time(REPEATED, size)
