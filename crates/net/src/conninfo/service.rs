//! Named sets of options in a file (manual, "The Connection Service File").

use std::fs;
use std::path::Path;

use super::settings::Settings;
use super::{ConninfoError, Environment};

/// Sets the options of the service that the connection string leaves unset.
pub(super) fn apply(settings: &mut Settings, environment: &Environment) -> Result<(), ConninfoError> {
    let given = settings.get("service").or_else(|| environment.variable("PGSERVICE"));
    let Some(service) = given.filter(|service| !service.is_empty()).map(str::to_owned) else { return Ok(()) };
    // A file that is named must exist; the others need not.
    let own = match environment.variable("PGSERVICEFILE") {
        Some(named) => Some(named.into()),
        None => environment.in_home(".pg_service.conf").filter(|path| path.exists()),
    };
    let shared = Some(environment.in_system("pg_service.conf")).filter(|path| path.exists());
    for path in own.into_iter().chain(shared) {
        if apply_file(&path, &service, settings)? {
            return Ok(());
        }
    }
    Err(ConninfoError::Service(service))
}

/// Sets the options of the service's first section in this file; false if there is none.
fn apply_file(path: &Path, service: &str, settings: &mut Settings) -> Result<bool, ConninfoError> {
    let text = fs::read(path).map_err(|why| ConninfoError::ServiceFile { path: path.into(), why: why.to_string() })?;
    let text = String::from_utf8_lossy(&text);
    let mut found = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            if found {
                break;
            }
            found = section.strip_prefix(service).is_some_and(|end| end.starts_with(']'));
        } else if found {
            let wrong = || ConninfoError::ServiceLine { path: path.into(), line: index + 1 };
            let (name, value) = line.split_once('=').ok_or_else(wrong)?;
            // libpq does not resolve a service within a service either.
            if name == "service" {
                return Err(wrong());
            }
            settings.set_default(name, value.into()).map_err(|_| wrong())?;
        }
    }
    Ok(found)
}
