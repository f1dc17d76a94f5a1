//! The options of a connection, by name, before they are interpreted: which options there are, and which of them Freshet ignores or refuses.
//!
//! Source: manual, "Parameter Key Words" and "Environment Variables", and `PQconninfoOptions` in `src/interfaces/libpq/fe-connect.c` of PostgreSQL
//! 18. An option is ignored only if its user does not rely on it. An option that asks for protection that Freshet does not give is refused.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::{ConninfoError, Environment};

/// What Freshet does with an option.
enum Use {
    /// Freshet uses it.
    Read,
    /// Freshet ignores it.
    Ignored,
    /// Freshet ignores it if it is empty or has one of these values; other values are refused with this advice.
    Only(&'static [&'static str], &'static str),
}

struct Known {
    name: &'static str,
    variable: Option<&'static str>,
    used: Use,
}

const fn read(name: &'static str, variable: &'static str) -> Known {
    Known { name, variable: Some(variable), used: Use::Read }
}

const fn ignored(name: &'static str, variable: Option<&'static str>) -> Known {
    Known { name, variable, used: Use::Ignored }
}

const fn only(name: &'static str, allowed: &'static [&'static str], advice: &'static str) -> Known {
    Known { name, variable: None, used: Use::Only(allowed, advice) }
}

impl Known {
    const fn or(mut self, variable: &'static str) -> Self {
        self.variable = Some(variable);
        self
    }
}

const NO_GSS: &str = "Kerberos is not supported; leave it out";
const NO_OAUTH: &str = "OAuth is not supported; leave it out and use a password or a certificate";

#[rustfmt::skip]
const KNOWN: &[Known] = &[
    read("service", "PGSERVICE"),
    read("user", "PGUSER"),
    read("password", "PGPASSWORD"),
    read("passfile", "PGPASSFILE"),
    read("dbname", "PGDATABASE"),
    read("host", "PGHOST"),
    read("hostaddr", "PGHOSTADDR"),
    read("port", "PGPORT"),
    read("options", "PGOPTIONS"),
    read("application_name", "PGAPPNAME"),
    Known { name: "fallback_application_name", variable: None, used: Use::Read },
    read("connect_timeout", "PGCONNECT_TIMEOUT"),
    read("target_session_attrs", "PGTARGETSESSIONATTRS"),
    read("channel_binding", "PGCHANNELBINDING"),
    read("sslmode", "PGSSLMODE"),
    read("sslnegotiation", "PGSSLNEGOTIATION"),
    read("sslcert", "PGSSLCERT"),
    read("sslkey", "PGSSLKEY"),
    read("sslcertmode", "PGSSLCERTMODE"),
    read("sslrootcert", "PGSSLROOTCERT"),
    read("sslcrl", "PGSSLCRL"),
    read("sslsni", "PGSSLSNI"),
    read("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    // Freshet's own connections always use UTF8, and its sockets have their own keep-alive times.
    ignored("client_encoding", Some("PGCLIENTENCODING")),
    ignored("keepalives", None),
    ignored("keepalives_idle", None),
    ignored("keepalives_interval", None),
    ignored("keepalives_count", None),
    ignored("tcp_user_timeout", None),
    // libpq ignores it too, as modern TLS libraries do not compress.
    ignored("sslcompression", Some("PGSSLCOMPRESSION")),
    // Freshet uses version 3.0, which no upper limit excludes.
    ignored("max_protocol_version", Some("PGMAXPROTOCOLVERSION")),
    only("min_protocol_version", &["3.0"], "Freshet speaks protocol 3.0; leave it out").or("PGMINPROTOCOLVERSION"),
    only("ssl_max_protocol_version", &["TLSv1.3"], "leave it out or set TLSv1.3").or("PGSSLMAXPROTOCOLVERSION"),
    only("sslpassword", &[], "decrypt the key file (openssl pkey -in KEY -out NEW) and leave it out"),
    only("sslcrldir", &[], "name one file with sslcrl").or("PGSSLCRLDIR"),
    only("sslkeylogfile", &[], "session keys are not written anywhere; leave it out"),
    only("requirepeer", &[], "protect the socket's directory by its permissions and leave it out").or("PGREQUIREPEER"),
    only("require_auth", &[], "use sslmode=verify-full or channel_binding=require and leave it out").or("PGREQUIREAUTH"),
    only("load_balance_hosts", &["disable"], "hosts are tried in order; leave it out").or("PGLOADBALANCEHOSTS"),
    only("replication", &["0", "false", "off", "no"], "Freshet opens its replication connections itself; leave it out"),
    only("gssencmode", &["disable", "prefer"], NO_GSS).or("PGGSSENCMODE"),
    only("gssdelegation", &["0"], NO_GSS).or("PGGSSDELEGATION"),
    only("gsslib", &["gssapi"], NO_GSS).or("PGGSSLIB"),
    only("krbsrvname", &["postgres"], NO_GSS).or("PGKRBSRVNAME"),
    only("scram_client_key", &[], "give the password, or a user of Freshet's own"),
    only("scram_server_key", &[], "give the password, or a user of Freshet's own"),
    only("oauth_issuer", &[], NO_OAUTH),
    only("oauth_client_id", &[], NO_OAUTH),
    only("oauth_client_secret", &[], NO_OAUTH),
    only("oauth_scope", &[], NO_OAUTH),
];

/// The options that are set.
#[derive(Default)]
pub(super) struct Settings {
    // One of them may be a password.
    values: BTreeMap<&'static str, Zeroizing<String>>,
}

impl Settings {
    /// Sets an option; the last setting applies.
    pub(super) fn set(&mut self, name: &str, value: String) -> Result<(), ConninfoError> {
        let (name, value) = recognised(name, value)?;
        self.values.insert(name, Zeroizing::new(value));
        Ok(())
    }

    /// Sets an option unless it is set already.
    pub(super) fn set_default(&mut self, name: &str, value: String) -> Result<(), ConninfoError> {
        let (name, value) = recognised(name, value)?;
        self.values.entry(name).or_insert(Zeroizing::new(value));
        Ok(())
    }

    /// Sets the options that are unset and have an environment variable.
    pub(super) fn set_from(&mut self, environment: &Environment) -> Result<(), ConninfoError> {
        for known in KNOWN {
            if let Some(value) = known.variable.and_then(|variable| environment.variable(variable)) {
                self.set_default(known.name, value.to_owned())?;
            }
        }
        // The variable of a removed option.
        if environment.variable("PGREQUIRESSL").is_some_and(|value| value.starts_with('1')) {
            self.set_default("sslmode", "require".into())?;
        }
        Ok(())
    }

    /// The value, if it is not empty.
    pub(super) fn get(&self, name: &'static str) -> Option<&str> {
        self.get_or_empty(name).filter(|value| !value.is_empty())
    }

    /// The value, even if it is empty.
    pub(super) fn get_or_empty(&self, name: &'static str) -> Option<&str> {
        debug_assert!(KNOWN.iter().any(|known| known.name == name), "{name} is in the table");
        self.values.get(name).map(|value| value.as_str())
    }

    /// The value as one of a few; libpq takes an empty one for an error.
    pub(super) fn one_of<T: Copy + Default>(
        &self,
        name: &'static str,
        values: &[(&str, T)],
    ) -> Result<T, ConninfoError> {
        let Some(given) = self.get_or_empty(name) else { return Ok(T::default()) };
        let found = values.iter().find(|(text, _)| *text == given).map(|(_, value)| *value);
        let expected = || values.iter().map(|(text, _)| *text).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| ConninfoError::Value { name, value: given.into(), expected: expected() })
    }

    /// Fails if an option is set to what Freshet cannot honour.
    pub(super) fn refuse_unsupported(&self) -> Result<(), ConninfoError> {
        for Known { name, variable, used } in KNOWN {
            if let Use::Only(allowed, advice) = used
                && self.get(name).is_some_and(|value| !allowed.contains(&value))
            {
                return Err(ConninfoError::Unsupported { name, variable: *variable, advice });
            }
        }
        Ok(())
    }
}

/// The option of this name, with its value.
fn recognised(name: &str, value: String) -> Result<(&'static str, String), ConninfoError> {
    // A removed option that libpq still understands.
    if name == "requiressl" {
        return Ok(("sslmode", if value.starts_with('1') { "require" } else { "prefer" }.into()));
    }
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        return Err(ConninfoError::Unknown(showable(name)));
    };
    if value.contains('\0') {
        return Err(ConninfoError::Text(known.name.into()));
    }
    Ok((known.name, value))
}

/// The name, as far as it has the form of an option's name; anything else may be part of a password.
pub(super) fn showable(name: &str) -> String {
    let shaped = name.len() <= 40 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if shaped { name.into() } else { "***".into() }
}
