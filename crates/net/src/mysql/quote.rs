//! Names, texts and accounts in statements.

/// A name in backquotes.
pub fn quote_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A text constant.
pub fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// An account, `root@%`, as GRANT wants it.
pub fn quote_account(account: &str) -> String {
    let (user, host) = account.rsplit_once('@').unwrap_or((account, "%"));
    format!("{}@{}", quote_text(user), quote_text(host))
}
