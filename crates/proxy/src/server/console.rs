//! The program's part in admin statements: its configuration.

/// The configuration, for admin statements.
pub trait Console: std::fmt::Debug + Send + Sync {
    /// All settings, with a value for each of the columns of SHOW CONFIG.
    fn settings(&self) -> Vec<[String; 6]>;
    /// Reads the configuration again. Returns the changes, with a value for each column of RELOAD, or what is wrong.
    fn reload(&self, user: &str) -> Result<Vec<[String; 4]>, String>;
    /// Adds a rule that caches a statement. Returns until when it is kept, in words.
    fn create_cache(&self, user: &str, new: NewCache) -> Result<String, AdminError>;
    /// Removes the rule of such a name or digest, or all of them. Returns their digests and names.
    fn drop_caches(&self, user: &str, called: Option<&str>) -> Result<Vec<(String, Option<String>)>, AdminError>;
}

/// Why an admin statement fails.
#[derive(Clone, Debug)]
pub struct AdminError {
    /// PostgreSQL's code for it.
    pub sqlstate: &'static str,
    /// The message for the client.
    pub message: String,
}

/// A rule that an operator makes by CREATE CACHE.
#[derive(Clone, Debug)]
pub struct NewCache {
    /// Its name.
    pub name: Option<String>,
    /// The digest of the statement.
    pub digest: String,
    /// How long results are served that changes do not invalidate, as it was written.
    pub ttl: Option<String>,
}
