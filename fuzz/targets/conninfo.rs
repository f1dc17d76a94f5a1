//! Connection strings: what is understood means the same when it is written in the other form.

#![no_main]

use freshet_fuzz::bounded;
use freshet_net::conninfo::{Address, Conninfo, Environment};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // The files that it may name are the operator's own, and slow to read: a device, say.
    if ["file", "ssl", "service", "/dev", "/proc", "%"].iter().any(|part| text.contains(part)) {
        let _ = bounded(text.len() * 64 + (256 << 10), || understand_without_files(text));
        return;
    }
    let Some(conninfo) = bounded(text.len() * 128 + (64 << 10), || understand(text)) else { return };
    assert!(!conninfo.hosts.is_empty() && !conninfo.user.is_empty() && !conninfo.database.is_empty());
    for host in &conninfo.hosts {
        assert!(host.address.port() > 0);
        assert_eq!(host.address.socket_path().is_some(), !matches!(host.address, Address::Tcp { .. }));
    }
    let mut again = String::from("connect_timeout=5");
    let mut put = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            again.push_str(&format!(" {name} = '{}'", value.replace('\\', "\\\\").replace('\'', "\\'")));
        }
    };
    put("user", Some(&conninfo.user));
    put("dbname", Some(&conninfo.database));
    put("application_name", conninfo.application_name.as_deref());
    put("options", conninfo.options.as_deref());
    let password = conninfo.hosts.first().and_then(|host| host.password.as_ref());
    put("password", password.map(|secret| secret.expose()));
    let read = understand(&again).expect("a text of its own");
    assert_eq!(
        (&read.user, &read.database, &read.application_name, &read.options),
        (&conninfo.user, &conninfo.database, &conninfo.application_name, &conninfo.options)
    );
    assert_eq!(read.hosts.first().and_then(|host| host.password.as_ref()), password);
});

fn understand(text: &str) -> Option<Conninfo> {
    Conninfo::parse(text, &Environment::of(&[("PGHOST", "127.0.0.1")], None, Some("somebody"))).ok()
}

/// Names of files lead nowhere.
fn understand_without_files(text: &str) -> Option<Conninfo> {
    understand(&text.replace('/', "").replace("file", "fi").replace("rootcert", "rc"))
}
