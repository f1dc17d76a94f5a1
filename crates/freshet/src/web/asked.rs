//! The database that a request names.

use freshet_proxy::{Database, Databases};

/// The scope of a request.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The name of one database. None: all.
    database: Option<String>,
}

impl Asked {
    /// `database=NAME`, percent-encoded.
    pub(super) fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        let name = pairs.filter(|(key, _)| *key == "database").map(|(_, value)| percent_decoded(value)).next();
        Self { database: name }
    }

    /// The database. None: all.
    pub(super) fn name(self) -> Option<String> {
        self.database
    }

    /// Whether the request includes this database.
    fn includes(&self, name: &str) -> bool {
        self.database.as_ref().is_none_or(|asked| asked == name)
    }

    pub(super) fn of(&self, databases: &Databases) -> Vec<Database> {
        databases.databases().iter().filter(|database| self.includes(&database.name)).cloned().collect()
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = text.as_bytes().iter();
    let mut out = Vec::new();
    while let Some(&byte) = bytes.next() {
        let digits = bytes.as_slice().get(..2).filter(|_| byte == b'%');
        let decoded = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match decoded {
            Some(decoded) => {
                out.push(decoded);
                bytes.nth(1);
            }
            None => out.push(if byte == b'+' { b' ' } else { byte }),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_database_is_decoded() {
        let name = |query: &str| Asked::parse(Some(query)).database;
        assert_eq!(name("a=b&database=my+%22shop%22%C3%A9"), Some("my \"shop\"é".to_owned()));
        assert_eq!((name("database=100%"), name("database=%zz")), (Some("100%".to_owned()), Some("%zz".to_owned())));
        assert_eq!((name("x=1"), Asked::parse(None).database), (None, None));
    }
}
