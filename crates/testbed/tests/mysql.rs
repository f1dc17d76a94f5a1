//! The testbed with a real MySQL server. If it is not installed, the tests fail with the command to run.

use freshet_testbed::{Mysql, MysqlSettings, process};

#[test]
fn lives_and_leaves_nothing() {
    let server = Mysql::start(&MysqlSettings::default().with("max-connections = 77")).unwrap();
    assert_eq!(server.url(), format!("mysql://root:freshet@127.0.0.1:{}/freshet", server.port()));
    assert!(server.sql("SELECT VERSION()").unwrap().starts_with("8.0."));
    assert_eq!(
        server.sql("SELECT DATABASE(), CURRENT_USER(), @@port").unwrap(),
        format!("freshet\troot@%\t{}", server.port())
    );
    assert_eq!(
        server.sql("SELECT @@gtid_executed = '', @@log_bin, @@binlog_format, @@binlog_row_image, @@gtid_mode").unwrap(),
        "1\t1\tROW\tFULL\tON"
    );
    assert_eq!(server.sql("SELECT @@max_connections, @@bind_address").unwrap(), "77\t127.0.0.1");
    assert!(server.sql("SELECT * FROM no_such_table").unwrap_err().to_string().contains("no_such_table"));
    assert_eq!(
        server
            .sql("SELECT GROUP_CONCAT(User, '@', Host ORDER BY User) FROM mysql.user WHERE User NOT LIKE 'mysql.%'")
            .unwrap(),
        "root@%"
    );

    server.sql("CREATE TABLE t (n INT PRIMARY KEY); INSERT INTO t VALUES (1), (2)").unwrap();
    server.restart().unwrap();
    server.sql("INSERT INTO t VALUES (3)").unwrap();
    server.kill9().unwrap();
    assert_eq!(server.pid(), None);
    server.start_again().unwrap();
    // Two statements of the first session, one of the second, none of the starts.
    assert!(server.sql("SELECT @@gtid_executed").unwrap().ends_with(":1-3"));
    assert_eq!(server.sql("SELECT COUNT(*) FROM t").unwrap(), "3");

    let (pid, directory) = (server.pid().unwrap(), server.directory().to_owned());
    server.pause().unwrap();
    // A signal just sent may not show yet.
    while process::Process::read(pid).unwrap().state != 'T' {
        std::thread::yield_now();
    }
    server.resume().unwrap();
    assert_eq!(server.sql("SELECT 1").unwrap(), "1");
    server.pause().unwrap();
    drop(server);
    assert!(process::Process::read(pid).is_err());
    assert!(!directory.exists());
}

#[test]
fn two_servers_are_not_the_same() {
    let [one, other] = [(); 2].map(|()| Mysql::start(&MysqlSettings::default()).unwrap());
    let question = "SELECT @@server_uuid";
    assert_ne!(one.sql(question).unwrap(), other.sql(question).unwrap());
}

#[test]
fn a_broken_setting_is_reported_with_what_the_server_said() {
    let error = Mysql::start(&MysqlSettings::default().with("no-such-setting = 1")).unwrap_err();
    assert!(format!("{error:#}").contains("no-such-setting"), "{error:#}");
}
