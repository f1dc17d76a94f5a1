//! How `freshet` ends after a failure: one line that says what to do, and an exit code by which a service manager decides
//! whether a new start can help.
//!
//! The codes are those of sysexits.h, whose names systemd shows. `freshet.service` does not start again after
//! [`Failure::Config`] and [`Failure::NoPermission`], since they need an administrator.

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind};
use std::process::{ExitCode, ExitStatus};

use freshet_proxy::ListenError;

/// EMFILE and ENFILE.
const TOO_MANY_FILES: [i32; 2] = [24, 23];

/// Why the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A command other than `serve` has failed.
    Command = 1,
    /// `EX_UNAVAILABLE`: an address is in use.
    Unavailable = 69,
    /// `EX_SOFTWARE`: the process that had taken over from this one has failed.
    Software = 70,
    /// `EX_OSERR`: the system's limits are too low.
    System = 71,
    /// `EX_NOPERM`: the process may not listen there.
    NoPermission = 77,
    /// `EX_CONFIG`: the configuration, or a file that it names, cannot be used.
    Config = 78,
}

/// The process that had taken over from this one has failed.
#[derive(Debug)]
pub(crate) struct SuccessorFailed(pub(crate) ExitStatus);

impl fmt::Display for SuccessorFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the process that had taken over has ended with {}", self.0)
    }
}

impl std::error::Error for SuccessorFailed {}

impl From<Failure> for ExitCode {
    fn from(failure: Failure) -> Self {
        Self::from(failure as u8)
    }
}

/// Prints why a command has failed. `otherwise` is the code where the error itself has none.
pub(crate) fn report(error: &anyhow::Error, otherwise: Failure) -> ExitCode {
    let (failure, remedy) = failure(error, otherwise);
    let separator = if remedy.is_empty() { "" } else { ": " };
    eprintln!("freshet: {}{separator}{remedy}", line(error));
    failure.into()
}

/// The code and the remedy. A command other than `serve` has one code for all failures: no service manager reads it.
fn failure(error: &anyhow::Error, otherwise: Failure) -> (Failure, String) {
    match cause(error) {
        Some((_, remedy)) if otherwise == Failure::Command => (otherwise, remedy),
        Some(found) => found,
        None => (otherwise, String::new()),
    }
}

/// All causes in one line. Some errors have the text of their cause in their own.
fn line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            let _ = write!(line, ": {cause}");
        }
    }
    line.replace('\n', "; ")
}

/// The code and the remedy of an error of the system.
fn cause(error: &anyhow::Error) -> Option<(Failure, String)> {
    if error.is::<SuccessorFailed>() {
        return Some((Failure::Software, String::new()));
    }
    let Some(system) = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()) else {
        // Some errors have only the text of their cause.
        let denied = line(error).contains("Permission denied (os error 13)");
        return denied.then(|| (Failure::Config, make_readable()));
    };
    if system.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code)) {
        return Some((
            Failure::System,
            "raise the limit of open files (LimitNOFILE= of the service, ulimit -n)".to_owned(),
        ));
    }
    let bound = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(ListenError::Bind(address, _)) => Some(address),
        _ => None,
    });
    let (failure, remedy) = match system.kind() {
        ErrorKind::AddrInUse => {
            (Failure::Unavailable, "end what listens there (ss -ltnp shows it), or choose another address".to_owned())
        }
        ErrorKind::AddrNotAvailable => (
            Failure::Config,
            "this machine has no such address (ip address shows them); 0.0.0.0 stands for all".to_owned(),
        ),
        ErrorKind::PermissionDenied if bound.is_some_and(|address| address.starts_with('/')) => {
            (Failure::NoPermission, format!("make the directory writable for {}", user()))
        }
        ErrorKind::PermissionDenied if bound.is_some() => (
            Failure::NoPermission,
            format!("{} may not listen there: a port below 1024 needs CAP_NET_BIND_SERVICE", user()),
        ),
        ErrorKind::PermissionDenied => (Failure::Config, make_readable()),
        _ => return None,
    };
    Some((failure, remedy))
}

/// Why a file cannot be read, and what to do.
pub(crate) fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => format!("{error}: {}", make_readable()),
        _ => error.to_string(),
    }
}

fn make_readable() -> String {
    format!("make it readable for {}", user())
}

/// The user that this process runs as.
pub(crate) fn user() -> String {
    let id = rustix::process::geteuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id.to_string()).then(|| name.to_owned())
    });
    name.map_or(format!("the user {id}"), |name| format!("the user {name} ({id})"))
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, Result, anyhow};

    use super::*;

    fn of(kind: ErrorKind) -> io::Error {
        io::Error::from(kind)
    }

    #[test]
    fn a_cause_is_said_once() {
        let inner = ListenError::Bind("127.0.0.1:1".to_owned(), io::Error::from_raw_os_error(98));
        let error = anyhow::Error::from(inner);
        assert_eq!(line(&error), "cannot listen on 127.0.0.1:1: Address already in use (os error 98)");
        let file: Result<()> = Err(of(ErrorKind::NotFound)).context("/x cannot be read");
        assert_eq!(line(&file.expect_err("an error")), "/x cannot be read: entity not found");
        assert_eq!(line(&anyhow!("two\nlines")), "two; lines");
    }

    #[test]
    fn causes_have_their_codes() {
        let bind = |kind| anyhow::Error::from(ListenError::Bind("[::]:1".to_owned(), of(kind)));
        let code = |error: &anyhow::Error| cause(error).map(|(failure, _)| failure);
        assert_eq!(code(&bind(ErrorKind::AddrInUse)), Some(Failure::Unavailable));
        assert_eq!(code(&bind(ErrorKind::AddrNotAvailable)), Some(Failure::Config));
        assert_eq!(code(&bind(ErrorKind::PermissionDenied)), Some(Failure::NoPermission));
        let file = anyhow::Error::from(of(ErrorKind::PermissionDenied)).context("/x cannot be read");
        assert_eq!(code(&file), Some(Failure::Config));
        assert_eq!(code(&anyhow::Error::from(io::Error::from_raw_os_error(24))), Some(Failure::System));
        assert_eq!(code(&anyhow!("anything else")), None);
        let in_use = bind(ErrorKind::AddrInUse);
        assert_eq!(failure(&in_use, Failure::Config).0, Failure::Unavailable);
        assert_eq!(failure(&in_use, Failure::Command).0, Failure::Command);
        assert_eq!(failure(&anyhow!("anything else"), Failure::Config).0, Failure::Config);
    }

    #[test]
    fn this_user_has_a_name_or_a_number() {
        assert!(user().contains(&rustix::process::geteuid().as_raw().to_string()));
    }
}
