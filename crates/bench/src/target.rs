//! The servers that get the load: a database, a cache in front of it, or a peer.
//!
//! A target is written as `NAME=URL`, with settings after commas: `freshet=postgres://u:p@127.0.0.1:6432/db,metrics=http://127.0.0.1:6433/metrics`.
//! The first SQL target of a run is the database itself. Data is loaded there, and answers are compared with its own.

use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// The protocol and dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
}

/// The kind of server.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// An SQL server, or a program with the same protocol.
    Sql(Family),
    /// memcached's text protocol; `host:port`.
    Memcached(String),
    /// Redis's or Valkey's protocol; `host:port`.
    Redis(String),
    /// A server that answers any request of the right length with bytes of the right length; `host:port`.
    Echo(String),
}

/// The source of the counters of hits and misses.
#[derive(Clone, Debug, PartialEq)]
pub enum Counters {
    /// Prometheus text over HTTP; the URL.
    Prometheus(String),
    /// MySQL's and MariaDB's query cache: `SHOW STATUS LIKE 'Qcache%'` on the target.
    Qcache,
    /// pgpool-II: `SHOW pool_cache` on the target.
    PoolCache,
    /// memcached's `stats`; `host:port`.
    Memcached(String),
    /// Redis's `INFO`; `host:port`.
    Redis(String),
}

/// One target of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The name in the results.
    pub name: String,
    /// The kind of server.
    pub kind: Kind,
    /// As typed, with the password. Never printed: see [`Target::shown_url`].
    pub url: String,
    /// The source of its counters, if it has any.
    pub counters: Option<Counters>,
    /// A memcached that the application reads first (look-aside): `host:port`.
    pub lookaside: Option<String>,
}

impl Target {
    /// The family, if it is a SQL target.
    pub const fn family(&self) -> Option<Family> {
        if let Kind::Sql(family) = self.kind { Some(family) } else { None }
    }

    /// The URL without its password.
    pub fn shown_url(&self) -> String {
        let (url, query) =
            self.url.split_once('?').filter(|(_, query)| !query.contains('@')).unwrap_or((&self.url, ""));
        let mut shown = url.to_owned();
        if let Some((scheme, rest)) = url.split_once("://")
            && let Some((account, place)) = rest.rsplit_once('@')
        {
            shown = format!("{scheme}://{}@{place}", account.split(':').next().unwrap_or_default());
        }
        let known = |parameter: &&str| !parameter.starts_with("password=") && !parameter.starts_with("sslpassword=");
        let parameters: Vec<&str> = query.split('&').filter(|p| !p.is_empty()).filter(known).collect();
        if parameters.is_empty() { shown } else { format!("{shown}?{}", parameters.join("&")) }
    }

    /// The target as typed, without passwords.
    pub fn shown(&self) -> String {
        Self { url: self.shown_url(), ..self.clone() }.typed()
    }

    /// The target as typed, with the password.
    pub fn typed(&self) -> String {
        let metrics = self.counters.as_ref().map(|counters| match counters {
            Counters::Prometheus(url) => format!(",metrics={url}"),
            Counters::Qcache => ",metrics=qcache".to_owned(),
            Counters::PoolCache => ",metrics=pool_cache".to_owned(),
            Counters::Memcached(place) => format!(",metrics=memcached://{place}"),
            Counters::Redis(place) => format!(",metrics=redis://{place}"),
        });
        let lookaside = self.lookaside.as_ref().map(|place| format!(",lookaside={place}"));
        format!("{}={}{}{}", self.name, self.url, metrics.unwrap_or_default(), lookaside.unwrap_or_default())
    }

    /// `host` and `port` of the URL, if it has them.
    pub fn address(&self) -> Option<(String, u16)> {
        let rest = self.url.split_once("://")?.1;
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        let place = place.split(['/', '?']).next()?;
        let usual = match self.kind {
            Kind::Sql(Family::Postgres) => 5432,
            Kind::Sql(Family::Mysql) => 3306,
            Kind::Memcached(_) => 11211,
            Kind::Redis(_) => 6379,
            Kind::Echo(_) => return place.rsplit_once(':').and_then(|(h, p)| Some((h.to_owned(), p.parse().ok()?))),
        };
        match place.rsplit_once(':') {
            Some((host, port)) => Some((host.to_owned(), port.parse().ok()?)),
            None => Some((place.to_owned(), usual)),
        }
    }
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        // The argument may contain a password, so no message repeats it.
        let (name, rest) =
            text.split_once('=').context("a target is NAME=URL, such as direct=postgres://user@host/db")?;
        ensure!(!name.contains("://"), "a target is NAME=URL: the name is missing");
        let mut parts = rest.split(',');
        let url = parts.next().unwrap_or_default().to_owned();
        let (scheme, place) =
            url.split_once("://").with_context(|| format!("{name}: not a URL such as postgres://user@host/db"))?;
        let place = place.trim_end_matches('/').to_owned();
        let kind = match scheme {
            "postgres" | "postgresql" => Kind::Sql(Family::Postgres),
            "mysql" | "mariadb" => Kind::Sql(Family::Mysql),
            "memcached" => Kind::Memcached(place),
            "redis" => Kind::Redis(place),
            "echo" => Kind::Echo(place),
            _ => bail!("{name}: {scheme}:// is none of postgres, mysql, memcached, redis and echo"),
        };
        let mut target = Self { name: name.to_owned(), kind, url: url.clone(), counters: None, lookaside: None };
        for part in parts {
            let (key, value) = part
                .split_once('=')
                .with_context(|| format!("{name}: after a comma follows KEY=VALUE (metrics= or lookaside=)"))?;
            match key {
                "metrics" => target.counters = Some(counters(value).with_context(|| name.to_owned())?),
                "lookaside" => target.lookaside = Some(value.trim_start_matches("memcached://").to_owned()),
                _ => bail!("{name}: unknown setting {key:?}; there are metrics= and lookaside="),
            }
        }
        Ok(target)
    }
}

fn counters(text: &str) -> Result<Counters> {
    Ok(match text {
        "qcache" => Counters::Qcache,
        "pool_cache" => Counters::PoolCache,
        _ => match text.split_once("://") {
            Some(("http", _)) => Counters::Prometheus(text.to_owned()),
            Some(("memcached", place)) => Counters::Memcached(place.to_owned()),
            Some(("redis", place)) => Counters::Redis(place.to_owned()),
            _ => bail!("metrics={text}: neither an http:// URL, memcached://, redis://, qcache nor pool_cache"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let target: Target = "f=postgres://u:p@w@127.0.0.1:6432/db,metrics=http://127.0.0.1:1/metrics".parse().unwrap();
        assert_eq!((target.name.as_str(), target.family()), ("f", Some(Family::Postgres)));
        assert_eq!(target.shown_url(), "postgres://u@127.0.0.1:6432/db");
        assert!(!target.shown().contains("p@w"));
        let other: Target = "d=postgres://127.0.0.1/db?user=u&password=SECRET".parse().unwrap();
        assert_eq!(other.shown(), "d=postgres://127.0.0.1/db?user=u");
        let slash: Target = "d=postgres://u:fre/SECRET?z@127.0.0.1:5/db".parse().unwrap();
        assert_eq!(slash.shown_url(), "postgres://u@127.0.0.1:5/db");
        let unnamed = "postgres://u:SECRET@h/d?x=1".parse::<Target>().unwrap_err();
        assert!(!format!("{unnamed:#}").contains("SECRET"), "{unnamed:#}");
        assert_eq!(target.address(), Some(("127.0.0.1".to_owned(), 6432)));
        assert_eq!(target.counters, Some(Counters::Prometheus("http://127.0.0.1:1/metrics".to_owned())));
        assert_eq!(target.typed().parse::<Target>().unwrap(), target);
        let peer: Target = "m=memcached://127.0.0.1:2".parse().unwrap();
        assert_eq!(peer.kind, Kind::Memcached("127.0.0.1:2".to_owned()));
        for wrong in ["x", "x=y", "x=ftp://y", "x=postgres://y,z", "x=postgres://y,pid=1", "x=mysql://y,metrics=z"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
