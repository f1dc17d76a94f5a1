//! The packets of one answer, and their contents.

use super::raw::Packet;

/// Reads integers and strings of a packet.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn fixed(&mut self, count: usize) -> Option<u64> {
        let bytes = self.bytes(count)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// The bytes up to a zero byte, which is consumed too.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.bytes(end)?;
        self.bytes(1)?;
        Some(text)
    }

    /// An integer of 1, 3, 4 or 9 bytes.
    pub(crate) fn integer(&mut self) -> Option<u64> {
        match self.fixed(1)? {
            0xfc => self.fixed(2),
            0xfd => self.fixed(3),
            0xfe => self.fixed(8),
            value @ 0..=0xfa => Some(value),
            _ => None,
        }
    }

    /// A column of a row in the text protocol; None is NULL.
    fn column(&mut self) -> Option<String> {
        // The mark of NULL is not a length.
        let length = usize::try_from(self.integer()?).ok()?;
        Some(String::from_utf8_lossy(self.bytes(length)?).into_owned())
    }
}

/// All packets of an answer, with all results.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) packets: Vec<Packet>,
    /// Which packets are rows.
    pub(crate) rows: Vec<usize>,
    /// The last status flags and number of warnings.
    pub(crate) status: u16,
    pub(crate) warnings: u16,
    /// The fields of the last OK.
    pub(crate) affected: u64,
    pub(crate) insert_id: u64,
}

impl Answer {
    /// Takes an OK, an EOF or an error; returns the status flags, none of an error.
    pub(super) fn end(&mut self, packet: Packet, ok: bool) -> u16 {
        let mut reader = Reader(packet.payload.get(1..).unwrap_or_default());
        self.status = 0;
        if packet.payload.first() == Some(&0xff) {
            // The rest is not parsed.
        } else if ok {
            self.affected = reader.integer().unwrap_or_default();
            self.insert_id = reader.integer().unwrap_or_default();
            self.status = reader.fixed(2).unwrap_or_default() as u16;
            self.warnings = reader.fixed(2).unwrap_or_default() as u16;
        } else {
            self.warnings = reader.fixed(2).unwrap_or_default() as u16;
            self.status = reader.fixed(2).unwrap_or_default() as u16;
        }
        self.packets.push(packet);
        self.status
    }

    /// The rows of a text answer; NULL is None.
    pub(crate) fn rows(&self) -> Vec<Vec<Option<String>>> {
        let columns = |packet: &Packet| {
            let mut reader = Reader(&packet.payload);
            let mut columns = Vec::new();
            while !reader.0.is_empty() {
                columns.push(reader.column());
            }
            columns
        };
        self.rows.iter().filter_map(|at| self.packets.get(*at)).map(columns).collect()
    }

    /// Code, SQLSTATE and text of the error at its end.
    pub(crate) fn error(&self) -> Option<(u16, String, String)> {
        let [0xff, low, high, b'#', rest @ ..] = self.packets.last()?.payload.as_slice() else { return None };
        let (state, text) = rest.split_at_checked(5)?;
        let string = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Some((u16::from_le_bytes([*low, *high]), string(state), string(text)))
    }
}
