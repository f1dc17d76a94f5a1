//! The testbed with a real MariaDB server. If it is not installed, the tests fail with the command to run.

use std::path::Path;
use std::time::{Duration, Instant};

use freshet_testbed::{Mariadb, MariadbSettings, process};

fn start(settings: &MariadbSettings) -> Mariadb {
    Mariadb::start(settings).unwrap()
}

#[test]
fn lives_and_leaves_nothing() {
    let server = start(&MariadbSettings::default().with("max-connections = 77"));
    assert_eq!(server.url(), format!("mysql://root:freshet@127.0.0.1:{}/freshet", server.port()));
    assert_eq!(
        server.sql("SELECT DATABASE(), CURRENT_USER(), @@port").unwrap(),
        format!("freshet\troot@%\t{}", server.port())
    );
    assert_eq!(server.sql("SELECT @@max_connections, @@bind_address").unwrap(), "77\t127.0.0.1");
    server.sql("CREATE TABLE t (n INT) ENGINE = InnoDB; INSERT INTO t VALUES (1), (2)").unwrap();
    assert_eq!(server.sql("SELECT COUNT(*) FROM t").unwrap(), "2");
    assert!(server.sql("SELECT * FROM no_such_table").unwrap_err().to_string().contains("no_such_table"));
    // A login without the password fails.
    assert_eq!(
        server.sql("SELECT GROUP_CONCAT(User, '@', Host ORDER BY User) FROM mysql.user").unwrap(),
        "mariadb.sys@localhost,root@%"
    );

    server.restart().unwrap();
    server.sql("INSERT INTO t VALUES (3)").unwrap();
    server.kill9().unwrap();
    server.start_again().unwrap();
    assert_eq!(server.sql("SELECT COUNT(*) FROM t").unwrap(), "3");

    let (pid, directory) = (server.pid().unwrap(), server.directory().to_owned());
    server.stop().unwrap();
    server.stop().unwrap();
    assert_eq!(server.pid(), None);
    assert!(process::Process::read(pid).is_err());
    assert!(server.sql("SELECT 1").is_err());
    drop(server);
    assert!(!directory.exists());
}

#[test]
fn a_binary_log_if_asked_for() {
    let question = "SELECT @@log_bin, @@binlog_format, @@server_id";
    let server = start(&MariadbSettings::default().with_binlog());
    assert_eq!(server.sql(question).unwrap(), "1\tROW\t1");
}

#[test]
fn a_broken_setting_is_reported_with_what_the_server_said() {
    let error = Mariadb::start(&MariadbSettings::default().with("no-such-setting = 1")).unwrap_err();
    assert!(format!("{error:#}").contains("no-such-setting"), "{error:#}");
}

#[test]
fn a_stopped_server_does_not_hold_up_the_drop() {
    let server = start(&MariadbSettings::default());
    let (pid, directory) = (server.pid().unwrap(), server.directory().to_owned());
    process::pause(pid).unwrap();
    drop(server);
    assert!(process::Process::read(pid).is_err());
    assert!(!directory.exists());
}

/// The next test runs this in another process, which is then killed.
#[test]
#[ignore = "only as the child of a_killed_parent_takes_its_server_along"]
fn start_and_wait_to_be_killed() {
    let server = start(&MariadbSettings::default());
    println!("pid {} directory {}", server.pid().unwrap(), server.directory().display());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_parent_takes_its_server_along() {
    use std::io::{BufRead, BufReader};
    let mut parent = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "start_and_wait_to_be_killed", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.into_iter().find(|line| line.contains("pid ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "pid").unwrap();
    let (pid, directory) = (words[at + 1].parse().unwrap(), Path::new(words[at + 3]));
    assert!(directory.exists());
    assert!(process::Process::read(pid).unwrap().title().contains("mariadbd"));
    parent.kill().unwrap();
    parent.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while process::Process::read(pid).is_ok() || directory.exists() {
        assert!(Instant::now() < deadline, "server and directory are still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}
