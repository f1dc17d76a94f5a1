//! What would make a statement cacheable that passes.

use crate::Reason;

impl Reason {
    /// What to do about it, in a sentence; None if nothing helps, or the reason passes by itself.
    pub fn remedy(&self) -> Option<String> {
        self.remedy_of_statement().or_else(|| self.remedy_of_table()).or_else(|| self.remedy_elsewhere())
    }

    fn remedy_of_statement(&self) -> Option<String> {
        let text = match self {
            Self::NotParsed => "Write it in simpler SQL, or report it: Freshet's parser should know it",
            Self::SeveralStatements => "Send each statement in a message of its own",
            Self::TooLong => "Send long lists as one array parameter (PostgreSQL), or in shorter statements",
            Self::LocksRows => "Leave the locking clause out where the rows are not changed afterwards",
            Self::Function(name) => {
                return Some(format!(
                    "Compute {name} in the application and send its value as a parameter, rounded if it is a time. \
                     If it is an IMMUTABLE function of your own, start Freshet with --trust-immutable"
                ));
            }
            Self::Operator(name) => return Some(format!("Write the condition without {name}")),
            Self::UserDefined(name) => {
                return Some(format!(
                    "Write the server's own function or operator with its schema (pg_catalog.…) or cast its arguments \
                     explicitly, so that {name} cannot mean yours; if that one is IMMUTABLE, start Freshet with --trust-immutable"
                ));
            }
            Self::ClockLiteral => {
                "Write the date as a constant; read texts by to_date() or to_timestamp() with a format"
            }
            Self::MessageShape => "Fetch whole results: without a cursor, a fetch size or Flush behind Execute",
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn remedy_of_table(&self) -> Option<String> {
        let text = match self {
            Self::TableKind(name) => {
                return Some(format!(
                    "Read an ordinary table instead of {name}; an unlogged one: ALTER TABLE … SET LOGGED"
                ));
            }
            Self::RowSecurity(name) => {
                return Some(format!("Filter {name} by a condition or a view instead of row-level security"));
            }
            Self::UserType(name) => return Some(format!("Select only columns of {name} with types of the server")),
            Self::NoReplicaIdentity(name) => {
                return Some(format!("Add a primary key to {name}, or: ALTER TABLE {name} REPLICA IDENTITY FULL"));
            }
            Self::GeneratedIdentity(name) => {
                return Some(format!(
                    "Add a primary key of columns that are not generated to {name}, and: ALTER TABLE {name} REPLICA IDENTITY DEFAULT"
                ));
            }
            Self::UnknownTable(name) => {
                return Some(format!(
                    "Grant Freshet's account USAGE of the schema of {name}, if it exists (freshet check)"
                ));
            }
            Self::NotPublished => "If it stays so: freshet check says what hinders the publication",
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn remedy_elsewhere(&self) -> Option<String> {
        let text = match self {
            Self::Serializable => "Read under READ COMMITTED or REPEATABLE READ",
            Self::WroteInTransaction => "Read before the first write of the transaction, or after its commit",
            Self::TemporaryTables => "Give temporary tables names that no other table has, or drop them after use",
            Self::MayHaveTemporary => {
                "Reset the connection when it goes back to the pool, and grant Freshet's account what freshet check names"
            }
            Self::Setting(setting) => return Some(format!("Do not set {setting} in sessions that read")),
            Self::OtherDatabase => "Start a Freshet for that database",
            Self::OtherServer => "Let --upstream name the server itself, not a balancer of several",
            Self::TooManyDatabases => {
                "Raise max_databases, or give the database an entry of its own in the configuration"
            }
            Self::DatabaseNotOpened => "Give the database an entry of its own in the configuration",
            Self::NoStream | Self::LeaseExpired => "freshet check says what the change stream lacks",
            Self::NotAdmitted => {
                "--admission always caches it anyway; with more --memory its results are evicted later"
            }
            Self::TooLarge => "Raise --memory (an entry may take a 64th of it), or select fewer rows and columns",
            Self::TooBusy => "Raise --memory",
            Self::Disabled => "Report it: an answer from the cache was wrong",
            Self::SwitchedOff => "FRESHET BYPASS OFF",
            _ => return None,
        };
        Some(text.to_owned())
    }
}
