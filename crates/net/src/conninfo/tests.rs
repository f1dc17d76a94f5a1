//! Connection strings and what libpq makes of them: the tables hold what `PQconninfoParse` of PostgreSQL 18 returns.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::tls::{ChannelBinding, RootCert, SslNegotiation};

/// A home directory, removed at the end.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("freshet-conninfo-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    /// Writes a file that only its owner can read.
    fn with(self, name: &str, text: &str) -> Self {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("below the home directory")).expect("its directory");
        fs::write(&path, text).expect("written");
        self.mode(name, 0o600)
    }

    fn mode(self, name: &str, mode: u32) -> Self {
        fs::set_permissions(self.0.join(name), fs::Permissions::from_mode(mode)).expect("permissions set");
        self
    }

    fn environment(&self, variables: &[(&str, &str)]) -> Environment {
        Environment::of(variables, Some(&self.0), Some("osuser"))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // If this fails, the directory stays in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn nowhere(variables: &[(&str, &str)]) -> Environment {
    Environment::of(variables, None, Some("osuser")).with_socket_directory("/nonexistent")
}

fn parse(text: &str) -> Conninfo {
    parse_with(text, &[])
}

fn parse_with(text: &str, variables: &[(&str, &str)]) -> Conninfo {
    Conninfo::parse(text, &nowhere(variables)).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn refused(text: &str) -> ConninfoError {
    Conninfo::parse(text, &nowhere(&[])).expect_err(text)
}

fn addresses(conninfo: &Conninfo) -> String {
    conninfo.hosts.iter().map(|host| host.address.to_string()).collect::<Vec<_>>().join(" ")
}

fn password(conninfo: &Conninfo, host: usize) -> Option<&str> {
    conninfo.hosts.get(host).expect("so many hosts").password.as_ref().map(Secret::expose)
}

/// The options that the text itself sets, as `name=value|name=value`.
fn set_by(text: &str) -> Result<String, ConninfoError> {
    let mut settings = Settings::default();
    match url::strip_scheme(text) {
        Some(rest) => url::parse(rest, &mut settings)?,
        None => keyvalue::parse(text, &mut settings)?,
    }
    let names = ["user", "password", "dbname", "host", "hostaddr", "port", "options", "sslmode"];
    let set = names.iter().filter_map(|name| Some(format!("{name}={}", settings.get_or_empty(name)?)));
    Ok(set.collect::<Vec<_>>().join("|"))
}

#[test]
fn texts_mean_what_libpq_makes_of_them() {
    let table = [
        ("", ""),
        ("  \t\n ", ""),
        ("host=db port=5", "host=db|port=5"),
        ("host = db\tport\n=\r5", "host=db|port=5"),
        ("host= port=5", "host=port=5"),
        ("host='' port=5", "host=|port=5"),
        ("user='a b'dbname=c", "user=a b|dbname=c"),
        (r"user=a\ b\'c\\d", r"user=a b'c\d"),
        (r"user='it\'s' password='\\'", r"user=it's|password=\"),
        (r"user=a\", "user=a"),
        ("user=a'b'", "user=a'b'"),
        ("user=a user=b", "user=b"),
        ("user=a=b", "user=a=b"),
        ("options='-c a=b'", "options=-c a=b"),
        ("requiressl=1", "sslmode=require"),
        ("requiressl=0", "sslmode=prefer"),
        ("postgres://", ""),
        ("postgresql://localhost", "host=localhost"),
        ("postgresql://localhost:5433", "host=localhost|port=5433"),
        ("postgresql://localhost/mydb", "dbname=mydb|host=localhost"),
        ("postgresql://user@localhost", "user=user|host=localhost"),
        ("postgresql://user:secret@localhost", "user=user|password=secret|host=localhost"),
        ("postgresql://u:a:b@h", "user=u|password=a:b|host=h"),
        ("postgresql://:p@h", "password=p|host=h"),
        ("postgresql://@h:/", "host=h"),
        ("postgresql://h1:1,h2:2,h3/d", "dbname=d|host=h1,h2,h3|port=1,2,"),
        ("postgresql://h1,h2/d", "dbname=d|host=h1,h2|port=,"),
        ("postgresql:///mydb?host=localhost&port=5433", "dbname=mydb|host=localhost|port=5433"),
        ("postgresql://other/mydb?host=/run/x", "dbname=mydb|host=/run/x"),
        ("postgresql://h/?dbname=d&user=u&password=p", "user=u|password=p|dbname=d|host=h"),
        ("postgresql://[2001:db8::1234]/d", "dbname=d|host=2001:db8::1234"),
        ("postgresql://[::1]:7,[::2]", "host=::1,::2|port=7,"),
        ("postgresql://%2Fvar%2Flib%2Fpostgresql/d", "dbname=d|host=/var/lib/postgresql"),
        ("postgresql://a%40b:p%2Fw%C3%A9@h/my%2fdb", "user=a@b|password=p/wé|dbname=my/db|host=h"),
        ("postgresql://h/a/b", "dbname=a/b|host=h"),
        ("postgresql://h?options=-c%20a%3Db+c", "host=h|options=-c a=b+c"),
        ("postgresql://h/d?ssl=true", "dbname=d|host=h|sslmode=require"),
        ("postgresql://h/d?sslmode=disable&", "dbname=d|host=h|sslmode=disable"),
        ("postgresql://h/d?host=", "dbname=d|host="),
        ("postgresql://h/ d ", "dbname=d|host=h"),
        ("postgresql://a%2Cb:1,2/d", "dbname=d|host=a,b,2|port=1,"),
    ];
    for (text, expected) in table {
        assert_eq!(set_by(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn texts_that_libpq_refuses_are_refused() {
    let table = [
        ("host", ConninfoError::NoEquals(1)),
        ("host=a b=", ConninfoError::Unknown("b".into())),
        ("host=a port", ConninfoError::NoEquals(2)),
        ("me@h", ConninfoError::NoEquals(1)),
        ("user='a", ConninfoError::Quote("user".into())),
        (r"user='a\'", ConninfoError::Quote("user".into())),
        ("postgres://[::1", ConninfoError::Bracket),
        ("postgres://[]", ConninfoError::Bracket),
        ("postgres://[::1]x", ConninfoError::Bracket),
        ("postgres://h/d?user", ConninfoError::Query),
        ("postgres://h/d?&", ConninfoError::Query),
        ("postgres://h/d?user=a=b", ConninfoError::Query),
        ("postgres://h/d?ssl=false", ConninfoError::Unknown("ssl".into())),
        ("postgres://h/d%", ConninfoError::Percent),
        ("postgres://h/d%4", ConninfoError::Percent),
        ("postgres://h/d%4x", ConninfoError::Percent),
        ("postgres://h/d%00", ConninfoError::Percent),
        ("postgres://h/a b", ConninfoError::Spaces),
    ];
    for (text, expected) in table {
        assert_eq!(set_by(text), Err(expected), "{text}");
    }
}

/// libpq would accept these strings, and fail later or ignore a part of them.
#[test]
fn what_cannot_work_is_refused_at_once() {
    assert_eq!(refused("mysql://me@h/d"), ConninfoError::Scheme("mysql".into()));
    assert_eq!(refused("postgres://u:p@ss@h/d"), ConninfoError::AtSign);
    assert_eq!(refused("postgres://h/%FF"), ConninfoError::Text("dbname".into()));
    assert_eq!(refused("host=@name"), ConninfoError::AbstractSocket);
    assert_eq!(refused("hostaddr=localhost"), ConninfoError::HostAddr);
    for port in ["0", "65536", "x", "-1", "1x"] {
        assert_eq!(refused(&format!("host=h port={port}")), ConninfoError::Port, "{port}");
    }
    let count = |name, given, hosts| ConninfoError::Count { name, given, hosts };
    assert_eq!(refused("host=a,b port=1,2,3"), count("port", 3, 2));
    assert_eq!(refused("host=a port=1,2"), count("port", 2, 1));
    assert_eq!(refused("host=a,b hostaddr=127.0.0.1"), count("hostaddr", 1, 2));
    assert_eq!(refused(&format!("host={}", "a,".repeat(100))), ConninfoError::Hosts(64));
    let no_user = Environment::of(&[], None, None);
    assert_eq!(Conninfo::parse("host=h", &no_user), Err(ConninfoError::NoUser));
    for text in ["sslmode=on", "sslmode=''", "channel_binding=yes", "target_session_attrs=master", "connect_timeout=x"]
    {
        assert!(matches!(refused(text), ConninfoError::Value { .. }), "{text}");
    }
}

#[test]
fn options_without_effect_pass_and_unsupported_ones_say_what_to_do() {
    let harmless = "keepalives=1 keepalives_idle=5 keepalives_interval=5 keepalives_count=3 tcp_user_timeout=9 \
                    load_balance_hosts=disable gssencmode=prefer client_encoding=LATIN1 sslcompression=1 \
                    ssl_max_protocol_version=TLSv1.3 require_auth='' krbsrvname=postgres max_protocol_version=latest";
    assert_eq!(parse(harmless), parse(""));
    let unsupported = [
        ("load_balance_hosts=random", "tried in order"),
        ("gssencmode=require", "Kerberos"),
        ("krbsrvname=pg", "Kerberos"),
        ("require_auth=scram-sha-256", "or PGREQUIREAUTH"),
        ("requirepeer=postgres", "permissions"),
        ("ssl_max_protocol_version=TLSv1.2", "TLSv1.3"),
        ("sslpassword=x", "openssl pkey"),
        ("sslcrldir=/x", "sslcrl"),
        ("min_protocol_version=3.2", "3.0"),
        ("replication=database", "itself"),
        ("oauth_issuer=x", "OAuth"),
    ];
    for (text, advice) in unsupported {
        let error = refused(text);
        assert!(matches!(error, ConninfoError::Unsupported { .. }), "{text}: {error}");
        assert!(error.to_string().contains(advice), "{text}: {error}");
    }
    assert_eq!(
        refused("Verbose=1").to_string().split(';').next(),
        Some("the connection option \"***\" does not exist")
    );
    assert!(refused("colour=1").to_string().contains("\"colour\""));
    let environment = nowhere(&[("PGREQUIREPEER", "postgres")]);
    assert!(matches!(Conninfo::parse("", &environment), Err(ConninfoError::Unsupported { name: "requirepeer", .. })));
}

#[test]
fn lists_of_hosts_become_addresses() {
    let table = [
        ("", "localhost:5432"),
        ("port=7", "localhost:7"),
        ("host=a,b", "a:5432 b:5432"),
        ("host=a,b port=7", "a:7 b:7"),
        ("host=a,b,c port=7,,9", "a:7 b:5432 c:9"),
        ("host=a, port=7", "a:7 localhost:7"),
        ("host=a port=' 7 '", "a:7"),
        ("host=/run/x,::1 port=7,8", "/run/x/.s.PGSQL.7 [::1]:8"),
        ("hostaddr=127.0.0.1,::1 port=7", "127.0.0.1:7 [::1]:7"),
        ("host=a,b hostaddr=127.0.0.1,", "a:5432 b:5432"),
        ("postgres://a:1,[::1]:2,%2Frun%2Fx:3,:4/d", "a:1 [::1]:2 /run/x/.s.PGSQL.3 localhost:4"),
        ("postgres://a,b/d?port=9", "a:9 b:9"),
    ];
    for (text, expected) in table {
        assert_eq!(addresses(&parse(text)), expected, "{text}");
    }
    let both = parse("host=a,b hostaddr=127.0.0.1,");
    let ips: Vec<_> = both.hosts.iter().map(|host| &host.address).collect();
    let tcp = |name: &str, ip| Address::Tcp { name: name.into(), ip, port: 5432 };
    assert_eq!(ips, [&tcp("a", "127.0.0.1".parse().ok()), &tcp("b", None)]);
    assert_eq!(both.primary_host().address.server_name(), "a");
    assert_eq!(parse("host=a,b dbname=d").to_string(), "a:5432,b:5432/d");
}

#[test]
fn the_default_host_is_a_socket_if_there_is_one() {
    let home = Home::new().with(".s.PGSQL.5432", "");
    let environment = nowhere(&[]).with_socket_directory(&home.0);
    let at = |text: &str| addresses(&Conninfo::parse(text, &environment).expect(text));
    assert_eq!(at(""), home.0.join(".s.PGSQL.5432").display().to_string());
    assert_eq!(at("port=5433"), "localhost:5433");
}

#[test]
fn defaults_and_the_environment_fill_what_is_open() {
    let bare = parse("");
    assert_eq!((bare.user.as_str(), bare.database.as_str()), ("osuser", "osuser"));
    assert_eq!((bare.connect_timeout, bare.target_session_attrs), (Duration::from_secs(10), TargetSessionAttrs::Any));
    assert_eq!((bare.application_name, bare.options, bare.tls), (None, None, TlsOptions::default()));
    assert_eq!(parse("user=me").database, "me");

    let variables = [
        ("PGHOST", "h1,h2"),
        ("PGHOSTADDR", "10.0.0.1,10.0.0.2"),
        ("PGPORT", "7"),
        ("PGDATABASE", "envdb"),
        ("PGUSER", "envuser"),
        ("PGPASSWORD", "envsecret"),
        ("PGOPTIONS", "-c a=b"),
        ("PGAPPNAME", "envapp"),
        ("PGCONNECT_TIMEOUT", "3"),
        ("PGTARGETSESSIONATTRS", "primary"),
        ("PGCHANNELBINDING", "require"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLNEGOTIATION", "direct"),
        ("PGSSLROOTCERT", "/r"),
        ("PGSSLCRL", "/l"),
        ("PGSSLCERT", "/c"),
        ("PGSSLKEY", "/k"),
        ("PGSSLSNI", "0"),
        ("PGSSLMINPROTOCOLVERSION", "TLSv1.3"),
    ];
    let full = parse_with("", &variables);
    assert_eq!(full.to_string(), "h1:7,h2:7/envdb");
    assert_eq!((full.user.as_str(), password(&full, 1)), ("envuser", Some("envsecret")));
    assert_eq!((full.options.as_deref(), full.application_name.as_deref()), (Some("-c a=b"), Some("envapp")));
    assert_eq!(full.connect_timeout, Duration::from_secs(3));
    assert_eq!(full.target_session_attrs, TargetSessionAttrs::Primary);
    let tls = TlsOptions {
        mode: SslMode::VerifyFull,
        root_cert: Some(RootCert::File("/r".into())),
        crl: Some("/l".into()),
        cert: Some("/c".into()),
        key: Some("/k".into()),
        negotiation: SslNegotiation::Direct,
        no_sni: true,
        tls13_only: true,
        channel_binding: ChannelBinding::Require,
    };
    assert_eq!(full.tls, tls);

    // The text takes precedence. An empty value counts as set: it asks for the default, not for the variable.
    let mixed = parse_with("user='' dbname=d port='' fallback_application_name=f hostaddr=''", &variables);
    assert_eq!((mixed.to_string().as_str(), mixed.user.as_str()), ("h1:5432,h2:5432/d", "osuser"));
    assert_eq!(mixed.application_name.as_deref(), Some("envapp"));
    assert_eq!(parse("fallback_application_name=f").application_name.as_deref(), Some("f"));
    // Empty parts of a URL set nothing.
    assert_eq!(parse_with("postgres:///", &variables).to_string(), "h1:7,h2:7/envdb");
    assert_eq!(parse_with("", &[("PGREQUIRESSL", "1")]).tls.mode, SslMode::Require);
}

#[test]
fn waiting_for_ever_is_an_hour() {
    for (text, seconds) in [("0", 3600), ("-1", 3600), ("1", 1), (" +3 ", 3), ("99999", 3600)] {
        let conninfo = parse(&format!("connect_timeout='{text}'"));
        assert_eq!(conninfo.connect_timeout, Duration::from_secs(seconds), "{text}");
    }
}

#[test]
fn tls_defaults_come_from_the_home_directory() {
    let home = Home::new().with(".postgresql/root.crt", "").with(".postgresql/postgresql.key", "");
    let tls = |text: &str| Conninfo::parse(text, &home.environment(&[])).expect(text).tls;
    let root = Some(RootCert::File(home.0.join(".postgresql/root.crt")));
    let found = tls("sslmode=verify-full");
    assert_eq!((found.root_cert, found.crl, found.cert), (root, None, None));
    assert_eq!(found.key, Some(home.0.join(".postgresql/postgresql.key")));
    assert_eq!(tls("sslrootcert=/other").root_cert, Some(RootCert::File("/other".into())));
    let silent = tls("sslcertmode=disable sslcert=/c sslkey=/k");
    assert_eq!((silent.cert, silent.key), (None, None));
}

#[test]
fn weak_modes_are_not_mistaken_for_strong_ones() {
    let system = parse("sslrootcert=system").tls;
    assert_eq!((system.mode, system.root_cert), (SslMode::VerifyFull, Some(RootCert::System)));
    assert_eq!(parse("sslrootcert=system sslmode=verify-full").tls.mode, SslMode::VerifyFull);
    for mode in ["disable", "allow", "prefer", "require", "verify-ca"] {
        let error = refused(&format!("sslrootcert=system sslmode={mode}"));
        assert!(matches!(error, ConninfoError::WeakMode { needed: "verify-full", .. }), "{mode}: {error}");
    }
    for mode in ["disable", "allow", "prefer"] {
        let error = refused(&format!("sslnegotiation=direct sslmode={mode}"));
        assert!(error.to_string().contains(&format!("sslmode={mode} is too weak")), "{error}");
    }
    assert!(matches!(refused("sslnegotiation=direct"), ConninfoError::WeakMode { .. }));
    assert_eq!(parse("sslnegotiation=direct sslmode=require").tls.negotiation, SslNegotiation::Direct);
    assert_eq!(refused("host=h sslmode=verify-ca"), ConninfoError::NoRootCert("verify-ca".into()));
    // There is no TLS over Unix sockets.
    assert_eq!(parse("host=/run/x sslmode=verify-ca").tls.mode, SslMode::VerifyCa);
}

#[test]
fn the_password_file_has_one_for_each_host() {
    let lines = "# comment:*:*:*:no\n\
                 \n\
                 h1:5432:d:me:first\r\n\
                 h1:5432:d:me:later\n\
                 h2:*:*:*:with\\:colon\\\\and:rest is ignored\n\
                 ::1:5433:*:*:six too\n\
                 \\:\\:1:5432:d:me:six\n\
                 localhost:5432:d:me:local\n\
                 /run/x:7:d:me:socket\n\
                 h3:5432:d:me\n\
                 h4:5432:d:me:\n\
                 h1:5432:*:a\\\\b:slash\n\
                 h5:5432:d:*:last";
    let home = Home::new().with(".pgpass", lines);
    let environment = home.environment(&[]).with_socket_directory("/run/default");
    let parse = |text: &str| Conninfo::parse(text, &environment).expect(text);
    let table = [
        ("host=h1", Some("first")),
        ("host=h1 port=5433", None),
        ("host=h1 dbname=other", None),
        ("host=h1 user=other", None),
        (r"host=h1 user=a\\b", Some("slash")),
        ("host=h1 password=given", Some("given")),
        ("host=h1 password=''", Some("first")),
        ("host=h2 port=9 dbname=x user=y", Some(r"with:colon\and")),
        ("host=::1", Some("six")),
        ("host=::1 port=5433", Some("six too")),
        ("host=/run/default", Some("local")),
        ("host=/run/x port=7", Some("socket")),
        ("host=h1 hostaddr=10.0.0.1", Some("first")),
        ("host=h", None),
        ("host=h3", None),
        ("host=h4", None),
        ("host=h5", Some("last")),
    ];
    for (text, expected) in table {
        let found = parse(&format!("user=me dbname=d {text}"));
        assert_eq!(password(&found, 0), expected, "{text}");
        assert_eq!(found.warnings, Vec::<String>::new());
    }
    let several = parse("host=h1,h3,h2 user=me dbname=d");
    assert_eq!([0, 1, 2].map(|host| password(&several, host)), [Some("first"), None, Some(r"with:colon\and")]);
}

#[test]
fn a_password_file_that_others_can_read_is_not_used() {
    let open = Home::new().with(".pgpass", "*:*:*:*:secret").mode(".pgpass", 0o640);
    let found = Conninfo::parse("host=h", &open.environment(&[])).expect("parsed");
    assert_eq!(password(&found, 0), None);
    assert!(found.warnings.iter().any(|w| w.contains("chmod 600")), "{:?}", found.warnings);

    let named = Home::new().with("pass", "*:*:*:*:named").with(".pgpass", "*:*:*:*:default");
    let path = named.0.join("pass");
    let path = path.to_str().expect("text");
    let by_variable = Conninfo::parse("host=h", &named.environment(&[("PGPASSFILE", path)])).expect("parsed");
    assert_eq!(password(&by_variable, 0), Some("named"));
    let by_option = Conninfo::parse(&format!("host=h passfile={path}"), &named.environment(&[])).expect("parsed");
    assert_eq!(password(&by_option, 0), Some("named"));
    for missing in ["/nonexistent/pass", "/"] {
        let found = Conninfo::parse(&format!("host=h passfile={missing}"), &named.environment(&[])).expect("parsed");
        assert_eq!((password(&found, 0), found.warnings.len()), (None, 1), "{missing}");
    }
}

#[test]
fn a_service_fills_what_the_text_leaves_open() {
    let text = "dbname=outside any section\n\
                [other]\nhost=wrong\n\
                # comment\n\
                [app]\n  host=h1,h2  \nport=7\nuser=svc\npassword=a=b c\n\n\
                [app]\nhost=second\n\
                [bad]\nhost\n[nested]\nservice=app\n[unknown]\ncolour=1\n";
    let home = Home::new().with(".pg_service.conf", text).with("shared/pg_service.conf", "[all]\nhost=shared\n");
    let shared = home.0.join("shared");
    let variables = [("PGSYSCONFDIR", shared.to_str().expect("text")), ("PGPORT", "9"), ("PGDATABASE", "envdb")];
    let environment = home.environment(&variables);
    let found = Conninfo::parse("service=app user=me", &environment).expect("found");
    assert_eq!((found.to_string().as_str(), found.user.as_str()), ("h1:7,h2:7/envdb", "me"));
    assert_eq!(password(&found, 0), Some("a=b c"));
    assert_eq!(addresses(&Conninfo::parse("service=all", &environment).expect("found")), "shared:9");

    let path = home.0.join(".pg_service.conf");
    let line = |line| ConninfoError::ServiceLine { path: path.clone(), line };
    let refused = |text: &str| Conninfo::parse(text, &environment).expect_err(text);
    assert_eq!(refused("service=bad"), line(14));
    assert_eq!(refused("service=nested"), line(16));
    assert_eq!(refused("service=unknown"), line(18));
    assert_eq!(refused("service=none"), ConninfoError::Service("none".into()));

    let by_variable = home.environment(&[("PGSERVICE", "app"), ("PGSYSCONFDIR", "/nonexistent")]);
    assert_eq!(Conninfo::parse("", &by_variable).expect("found").user, "svc");
    let missing = home.environment(&[("PGSERVICE", "app"), ("PGSERVICEFILE", "/nonexistent/file")]);
    assert!(matches!(Conninfo::parse("", &missing), Err(ConninfoError::ServiceFile { .. })));
}

#[test]
fn passwords_are_not_shown() {
    let shown = parse("postgres://me:topsecret@h1,h2/d");
    assert_eq!(password(&shown, 1), Some("topsecret"));
    let environment = nowhere(&[("PGPASSWORD", "topsecret")]);
    assert!(!format!("{shown:?} {shown} {environment:?}").contains("topsecret"));
    // Mistakes that move the password, or parts of it, to other places.
    let mistaken = [
        "postgres://me:topsecret/x@h/d",
        "postgres://me:x@topsecret@h/d",
        "postgres://me:topsecret%@h/d",
        "postgres://me:topsecret%FF@h/d",
        "postgres://me:top secret@h/d",
        "host=h password=x topsecret",
        "host=h password=x Topsecret1=y",
        "host=h password='topsecret",
        "topsecret",
        "me:topsecret@h/d",
    ];
    for text in mistaken {
        let error = refused(text);
        let shown = format!("{error} {error:?}").to_lowercase();
        assert!(!shown.contains("secret"), "{text}: {shown}");
    }
}

#[test]
fn the_process_has_an_environment() {
    let environment = Environment::process();
    assert!(environment.user().is_some_and(|user| !user.is_empty()));
    assert_eq!(environment.socket_directory(), Path::new("/var/run/postgresql"));
}
