//! URLs, good and bad.

use super::*;

fn parse(url: &str) -> Upstream {
    Upstream::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.to_owned(), port }
}

#[test]
fn urls_are_read() {
    let full = parse("mysql://us%40er:p%3A%40ss%25+@db.example:3307/my%2Fdb?ssl-mode=disabled&connect_timeout=3");
    assert_eq!((full.user(), full.password().expose(), full.database()), ("us@er", "p:@ss%+", Some("my/db")));
    assert_eq!((full.address(), full.connect_timeout()), (&tcp("db.example", 3307), Duration::from_secs(3)));
    assert!(!full.accepts_tls(0) && !full.requires_tls());
    let bare = parse("mariadb://me@localhost");
    assert_eq!((bare.address(), bare.database(), bare.password().expose()), (&tcp("localhost", 3306), None, ""));
    assert!(bare.accepts_tls(0) && !bare.requires_tls());
    assert_eq!(parse("mysql://me@").address(), &tcp("localhost", 3306));
    assert_eq!(parse("mysql://me@[::1]:33/x").address(), &tcp("::1", 33));
    assert_eq!(parse("mysql://me@[::1]").to_string(), "[::1]:3306");
    let socket = parse("mysql://me@localhost/x?socket=%2Frun%2Fmysqld.sock");
    assert_eq!(socket.address(), &Address::Unix("/run/mysqld.sock".into()));
    for (mode, accepts, requires) in [("PREFERRED", true, false), ("Required", true, true), ("DISABLED", false, false)]
    {
        let upstream = parse(&format!("mysql://me@h?ssl_mode={mode}"));
        assert_eq!((upstream.accepts_tls(0), upstream.requires_tls()), (accepts, requires), "{mode}");
    }
    assert!(Upstream::is_url("mariadb://x") && !Upstream::is_url("postgres://x"));
    let other = full.with_user("you", Secret::new("theirs".into()), None);
    assert_eq!((other.user(), other.database(), other.address()), ("you", None, full.address()));
}

#[test]
fn several_hosts_are_read() {
    let list = parse("mysql://me:a,b@db1,[::1]:3307,db%2C3:33/shop");
    let all = [tcp("db1", 3306), tcp("::1", 3307), tcp("db,3", 33)];
    assert!(list.addresses().eq(&all) && list.has_several_hosts() && list.chosen().is_none());
    assert_eq!((list.password().expose(), list.database(), list.address()), ("a,b", Some("shop"), &all[0]));
    assert_eq!(list.to_string(), "db1:3306,[::1]:3307,db,3:33/shop");
    let other = list.with_user("you", Secret::default(), None);
    assert!(other.choose(1));
    assert_eq!((list.chosen(), list.address()), (Some(1), &all[1]), "one choice for all who use it");
    // What is known of the TLS of one is not known of another.
    list.set_tls_incompatible(1);
    assert!(list.tls_is_settled() && !list.accepts_tls(1) && list.accepts_tls(0));
    assert!(!list.choose(0) && list.reject(1) && list.choose(0) && !list.tls_is_settled());
    let one = parse("mysql://me@db1");
    assert!(!one.has_several_hosts() && one.chosen() == Some(0));
}

#[test]
fn a_server_without_our_ciphers_is_remembered() {
    let upstream = parse("mysql://me@h");
    assert!(!upstream.tls_is_settled());
    upstream.with_user("you", Secret::default(), None).set_tls_incompatible(0);
    assert!(!upstream.accepts_tls(0) && upstream.tls_is_settled(), "by all who use it");
    let required = parse("mysql://me@h?ssl-mode=required");
    required.set_tls_incompatible(0);
    assert!(required.accepts_tls(0) && required.tls_is_settled());
}

#[test]
fn mistakes_are_told_without_the_password() {
    for (url, hint) in [
        ("postgres://me:hunter2@h", "mysql://"),
        ("me:hunter2@h", "mysql://"),
        ("mysql://h/db", "no user"),
        ("mysql://:hunter2@h", "no user"),
        ("mysql://me:hunter2@more@h", "%40"),
        ("mysql://me:hun/ter2@h", "%40"),
        ("mysql://me:hunter2", "no user"),
        ("mysql://me:hunter2@h:hunter2", "1 to 65535"),
        ("mysql://me:hunter2@h:0", "1 to 65535"),
        ("mysql://me:hunter%2@h", "%25"),
        ("mysql://me:hunter2%00@h", "%25"),
        ("mysql://me:%ff@h", "%25"),
        ("mysql://me:hunter2@[::1/x", "brackets"),
        ("mysql://me:hunter2@[::1]x", "brackets"),
        ("mysql://me:hunter2@h,,i", "empty place"),
        ("mysql://me:hunter2@h,", "empty place"),
        ("mysql://me:hunter2@h,i:0", "1 to 65535"),
        ("mysql://me:hunter2@h,i?socket=/run/x", "a socket"),
        ("mysql://me:hunter2@h?hunter2", "name=value"),
        ("mysql://me:hunter2@h?hunter2=1", "known are ssl-mode"),
        ("mysql://me:hunter2@h?sslmode=require", "known are ssl-mode"),
        ("mysql://me:hunter2@h?ssl-mode=hunter2", "verify-identity"),
        ("mysql://me:hunter2@h?ssl-mode=verify-ca", "ssl-ca=FILE"),
        ("mysql://me:hunter2@h?ssl-cert=x", "belong together"),
        ("mysql://me:hunter2@h?ssl-ca=/nowhere/ca.pem", "/nowhere/ca.pem"),
        ("mysql://me:hunter2@h?connect-timeout=0", "1 to 3600"),
    ] {
        let error = Upstream::parse(url).err().unwrap_or_else(|| panic!("{url} was taken")).to_string();
        assert!(error.contains(hint), "{url}: {error}");
        assert!(!error.contains("hunter2"), "{url}: {error}");
    }
    let shown = parse("mysql://me:hunter2@h/db");
    assert_eq!(shown.to_string(), "h:3306/db");
    assert!(!format!("{shown:?}").contains("hunter2"));
}
