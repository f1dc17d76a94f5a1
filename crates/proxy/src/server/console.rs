//! What the program tells and does for admin statements that sessions know nothing of: its configuration.

/// The configuration, for admin statements.
pub trait Console: std::fmt::Debug + Send + Sync {
    /// All settings, with a value for each of the columns of SHOW CONFIG.
    fn settings(&self) -> Vec<[String; 6]>;
    /// Reads the configuration again: what has changed, with a value for each of the columns of RELOAD, or what is wrong.
    fn reload(&self, user: &str) -> Result<Vec<[String; 4]>, String>;
}
