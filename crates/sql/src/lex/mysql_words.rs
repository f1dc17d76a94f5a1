//! Keywords that the lexer treats specially.

/// Frequent words that both servers reserve in all versions: unquoted and not behind a point they are never names. In lower case.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "add", "all", "alter", "and", "as", "asc", "between", "by", "call", "case", "change", "collate", "column",
    "convert", "create", "cross", "database", "default", "delete", "desc", "describe", "distinct", "distinctrow", "div",
    "drop", "else", "exists", "explain", "false", "for", "force", "from", "grant", "group", "having", "high_priority",
    "ignore", "in", "index", "inner", "insert", "interval", "into", "is", "join", "key", "keys", "kill", "left",
    "like", "limit", "load", "lock", "low_priority", "match", "mod", "natural", "not", "null", "on", "or", "order",
    "outer", "procedure", "regexp", "rename", "replace", "revoke", "right", "rlike", "select", "set", "show",
    "sql_big_result", "sql_calc_found_rows", "sql_small_result", "straight_join", "table", "then", "to", "true",
    "union", "unlock", "update", "use", "using", "values", "when", "where", "with", "write", "xor",
];

/// Words that are not reserved, or not in every version, and that may precede a parenthesis without being a function call.
#[rustfmt::skip]
const BRACKETED: &[&str] = &[
    "against", "any", "binary", "blob", "bool", "boolean", "btree", "character", "date", "datetime", "decimal", "double",
    "filter", "fixed", "float", "hash", "int", "integer", "lateral", "nchar", "numeric", "offset", "over", "partition",
    "row", "rows", "signed", "some", "time", "timestamp", "unsigned", "value", "varbinary", "varchar", "within", "work",
];

/// Whether a parenthesis behind a word, in lower case, need not be a call.
pub(crate) fn takes_brackets(word: &str) -> bool {
    BRACKETED.binary_search(&word).is_ok()
}

/// Whether both servers reserve a word, in lower case.
pub(crate) fn is_reserved(word: &str) -> bool {
    // This runs for each word of each text. Few reserved words have the same first letter, and most differ in length.
    let letter = word.bytes().next().map_or(LETTERS, |first| usize::from(first.wrapping_sub(b'a')));
    let of_letter = STARTS.get(letter).zip(STARTS.get(letter + 1));
    of_letter.and_then(|(start, end)| RESERVED.get(*start..*end)).is_some_and(|words| words.contains(&word))
}

const LETTERS: usize = 26;

/// The index of each letter's first reserved word, and the end of the last letter's words.
const STARTS: [usize; LETTERS + 1] = {
    let mut starts = [RESERVED.len(); LETTERS + 1];
    let mut at = RESERVED.len();
    while at > 0 {
        at -= 1;
        let mut letter = (RESERVED[at].as_bytes()[0] - b'a') as usize;
        starts[letter] = at;
        // A letter without words has an empty range.
        while letter > 0 {
            letter -= 1;
            starts[letter] = at;
        }
    }
    starts
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted() {
        assert!(RESERVED.is_sorted() && BRACKETED.is_sorted());
        assert!(RESERVED.iter().all(|word| is_reserved(word)));
        assert!(!["", "j", "na", "names", "zone", "é", "Select", "{"].into_iter().any(is_reserved));
    }
}
