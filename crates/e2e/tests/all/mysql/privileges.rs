//! Privileges that are revoked through Freshet: from the acknowledgement on, a session gets the same answers as directly.

use anyhow::{Context, Result, ensure};

use super::support::{Database, Kind, Login, Pair, RawClient, SESSION_MODE, on_both};
use crate::support::{PATIENCE, eventually, rest};

on_both!(what_is_taken_away_is_refused_at_once, roles_that_a_session_leaves);

const SCHEMA: &str = "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20)); INSERT INTO item VALUES (1, 'kettle')";
const READ: &str = "SELECT name FROM item WHERE id = 1";
const ROUNDS: usize = 5;

/// A database, its reader's account and a role.
struct Stage {
    kind: Kind,
    pair: Pair,
}

impl Stage {
    fn new(kind: Kind) -> Result<Self> {
        // Of its own: each GRANT flushes the cache.
        let database = Database::create(kind.start(&Kind::settings())?)?;
        Ok(Self { kind, pair: Pair::over(database, SCHEMA, &[&["--admission", "always"], SESSION_MODE].concat())? })
    }

    fn reader(&self, address: std::net::SocketAddr) -> Result<RawClient> {
        RawClient::login(address, Login { user: "reader", password: "word", ..self.pair.login() })
    }

    /// `{}` is the database.
    fn run(&self, c: &mut RawClient, statements: &[&str]) -> Result<()> {
        for sql in statements {
            let sql = sql.replace("{}", &self.pair.database.name);
            c.run(&sql).with_context(|| sql.clone())?;
        }
        Ok(())
    }

    fn create_user(&self) -> &'static str {
        match self.kind {
            Kind::Mariadb => "CREATE USER reader@'%' IDENTIFIED BY 'word'",
            Kind::Mysql => "CREATE USER reader@'%' IDENTIFIED WITH mysql_native_password BY 'word'",
        }
    }

    fn default_role(&self) -> &'static str {
        match self.kind {
            Kind::Mariadb => "SET DEFAULT ROLE viewer FOR reader@'%'",
            Kind::Mysql => "SET DEFAULT ROLE viewer TO reader@'%'",
        }
    }

    fn until_hit(&self, c: &mut RawClient) -> Result<()> {
        eventually(PATIENCE, || {
            let before = self.pair.freshet.metrics()?;
            ensure!(c.value(READ)? == "kettle", "another answer");
            let after = self.pair.freshet.metrics()?;
            ensure!(after.hits() > before.hits(), "no hit; {:?}", after.passed_since(&before));
            rest();
            Ok(())
        })
    }
}

/// What the read is refused with, if it is.
fn refused(c: &mut RawClient) -> Result<Option<u16>> {
    Ok(c.query(READ)?.error().map(|(code, ..)| code))
}

fn what_is_taken_away_is_refused_at_once(kind: Kind) -> Result<()> {
    let stage = Stage::new(kind)?;
    if !stage.pair.freshet.is_there() {
        return Ok(());
    }
    let of_role: &[&str] = &[
        "CREATE ROLE viewer",
        "GRANT SELECT ON {}.item TO viewer",
        "GRANT viewer TO reader@'%'",
        stage.default_role(),
    ];
    let mut owner = stage.pair.connect()?;
    for (given, taken) in [
        (&["GRANT SELECT ON {}.item TO reader@'%'"][..], "REVOKE SELECT ON {}.item FROM reader@'%'"),
        (&["GRANT SELECT (id, name) ON {}.item TO reader@'%'"], "REVOKE SELECT (name) ON {}.item FROM reader@'%'"),
        (&["GRANT SELECT ON {}.* TO reader@'%'"], "REVOKE ALL PRIVILEGES, GRANT OPTION FROM reader@'%'"),
        (&["GRANT SELECT ON *.* TO reader@'%'"], "REVOKE SELECT ON *.* FROM reader@'%'"),
        (&["GRANT SELECT ON {}.item TO reader@'%'"], "DROP USER reader@'%'"),
        (of_role, "REVOKE SELECT ON {}.item FROM viewer"),
        (of_role, "REVOKE viewer FROM reader@'%'"),
        (of_role, "DROP ROLE viewer"),
    ] {
        for _ in 0..ROUNDS {
            stage.run(&mut owner, &[stage.create_user()])?;
            stage.run(&mut owner, given)?;
            let mut direct = stage.reader(stage.pair.database.address())?;
            let mut through = stage.reader(stage.pair.address())?;
            stage.until_hit(&mut through)?;
            assert_eq!(refused(&mut direct)?, None);
            stage.run(&mut owner, &[taken])?;
            // At once, and it stays so.
            for _ in 0..3 {
                let told = refused(&mut through)?;
                assert_eq!(told, refused(&mut direct)?, "behind {taken}");
            }
            // Who logs in now has what is left.
            let directly = stage.reader(stage.pair.database.address()).and_then(|mut c| refused(&mut c)).ok();
            assert_eq!(stage.reader(stage.pair.address()).and_then(|mut c| refused(&mut c)).ok(), directly, "{taken}");
            stage.run(&mut owner, &["DROP USER IF EXISTS reader@'%'", "DROP ROLE IF EXISTS viewer"])?;
        }
    }
    Ok(())
}

fn roles_that_a_session_leaves(kind: Kind) -> Result<()> {
    let stage = Stage::new(kind)?;
    if !stage.pair.freshet.is_there() {
        return Ok(());
    }
    let mut owner = stage.pair.connect()?;
    stage.run(
        &mut owner,
        &[
            stage.create_user(),
            "CREATE ROLE viewer",
            "GRANT SELECT ON {}.item TO viewer",
            "GRANT viewer TO reader@'%'",
            stage.default_role(),
        ],
    )?;
    let mut through = stage.reader(stage.pair.address())?;
    for _ in 0..ROUNDS {
        stage.until_hit(&mut through)?;
        through.run("SET ROLE NONE")?;
        assert_eq!(refused(&mut through)?, Some(1142));
        assert_eq!(refused(&mut through)?, Some(1142));
        through.run("SET ROLE viewer")?;
    }
    Ok(())
}

/// Roles of everybody are in no log.
#[test]
fn roles_of_everybody() -> Result<()> {
    let stage = Stage::new(Kind::Mysql)?;
    if !stage.pair.freshet.is_there() {
        return Ok(());
    }
    let mut owner = stage.pair.connect()?;
    stage.run(
        &mut owner,
        &[
            stage.create_user(),
            "GRANT INSERT ON {}.item TO reader@'%'",
            "CREATE ROLE viewer",
            "GRANT SELECT ON {}.item TO viewer",
            "SET @none = ''",
        ],
    )?;
    for taken in [
        "SET GLOBAL mandatory_roles = ''",
        "SET @@GLOBAL.mandatory_roles = @none",
        "SET PERSIST mandatory_roles = ''",
        "PREPARE s FROM 'SET GLOBAL mandatory_roles = @none'; EXECUTE s",
    ] {
        for _ in 0..ROUNDS {
            stage.run(&mut owner, &["SET GLOBAL mandatory_roles = 'viewer'"])?;
            let mut direct = stage.reader(stage.pair.database.address())?;
            let mut through = stage.reader(stage.pair.address())?;
            direct.run("SET ROLE ALL")?;
            through.run("SET ROLE ALL")?;
            stage.until_hit(&mut through)?;
            assert_eq!(refused(&mut direct)?, None);
            for statement in taken.split("; ") {
                owner.run(statement)?;
            }
            for _ in 0..3 {
                let told = refused(&mut through)?;
                assert_eq!(told, refused(&mut direct)?, "behind {taken}");
            }
        }
    }
    Ok(())
}
