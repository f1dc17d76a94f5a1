//! What both families' tests of definitions share: how an answer shows the version of a definition, and the check with the ledger.

use anyhow::{Result, ensure};

use super::ledger::{KeyId, Row, Seen, Span, Table};
use super::line::{Answer, Trouble};
use super::stage::{Place, Stage};

/// The row of a definition in the ledger.
pub(crate) const NO_ROW: Row = Row { grp: 0, kind: 0 };

/// How an answer shows the version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shows {
    /// The version is the value.
    Value,
    /// The version is the value. Between two versions there is no row, since definitions are committed one by one.
    ValueOrNothing,
    /// Odd versions refuse the read.
    Refusal,
    /// Odd versions show one row, even ones two.
    Rows,
}

/// What the server answered.
#[derive(Debug, PartialEq)]
pub(crate) enum Shown {
    Refused,
    Rows(Vec<Vec<Option<i64>>>),
}

impl Shown {
    pub(crate) fn fits(&self, shows: Shows, version: i32) -> bool {
        let odd = version % 2 != 0;
        match (shows, self) {
            (Shows::Refusal, Self::Refused) => odd,
            (Shows::Refusal, Self::Rows(rows)) => !odd && rows.len() == 1,
            (Shows::Value | Shows::ValueOrNothing, Self::Rows(rows)) => *rows == [[Some(i64::from(version))]],
            (Shows::Rows, Self::Rows(rows)) => rows.len() == if odd { 1 } else { 2 },
            (_, Self::Refused) => false,
        }
    }
}

/// The statements of a change that are the same for even and odd versions.
pub(crate) const fn always(change: &'static str) -> [&'static str; 2] {
    [change, change]
}

/// The key of a definition in the ledger.
pub(crate) fn key_of(subject: usize) -> KeyId {
    (Table::Definition, i32::try_from(subject).unwrap_or(i32::MAX))
}

impl<P: Place> Stage<P> {
    /// Checks an answer that shows a version of a definition with the ledger.
    pub(crate) fn check_definition(
        &self,
        subject: usize,
        (read, shows): (&str, Shows),
        shown: &Shown,
        (span, seen): (Span, &mut Seen),
    ) {
        self.count_reads(1);
        let (key, ledger) = (key_of(subject), &mut *self.ledger());
        let verdict = match ledger.fit(key, span, seen, |version, _| shown.fits(shows, version)) {
            Some(fit) => ledger.note(key, span, fit, (seen, None)),
            None => Err(ledger.explain(key, span, seen)),
        };
        if let Err(what) = verdict {
            self.violated(format!("{read}\n  answered {shown:?}\n  {what}"));
        }
    }
}

/// What a read shows. None if the definition changed during the statement, which the database does not hide. `rights` and `moved`: the codes of a
/// missing right, and of such a change.
pub(crate) fn shown(
    (read, shows): (&str, Shows),
    outcome: Result<&Answer, Trouble>,
    rights: &[&str],
    moved: &[&str],
) -> Result<Option<Shown>> {
    match outcome {
        Ok(answer) => {
            let rows = answer.sorted(0);
            let is_between = rows.is_empty() && shows == Shows::ValueOrNothing;
            Ok((!is_between).then_some(Shown::Rows(rows)))
        }
        Err(Trouble::Refused { code, .. }) if shows == Shows::Refusal && rights.contains(&code.as_str()) => {
            Ok(Some(Shown::Refused))
        }
        Err(Trouble::Refused { code, message }) => {
            ensure!(moved.contains(&code.as_str()), "{read}: {code}: {message}");
            Ok(None)
        }
        Err(lost) => Err(lost.into()),
    }
}
