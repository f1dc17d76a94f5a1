//! Events of the binlog: a sequence of them without checksums, as in a file of such. Row events are read with the columns of
//! the table maps before them.

#![no_main]

use freshet_fuzz::{bounded, cuts};
use freshet_types::Cell;
use freshet_wire::mysql::binlog::{Checksum, Column, Event, Image, Rows, UNPACKED_BYTES_MAX, split};
use freshet_wire::reader::Reader;
use libfuzzer_sys::fuzz_target;

/// Types that may hold more than their bytes.
const PACKED: [u8; 8] = [40, 165, 166, 167, 168, 169, 170, 171];

fuzz_target!(|data: &[u8]| {
    let mut columns = Vec::new();
    read(data, &mut columns, true);
    // As a packet of a dump: with a checksum, or without.
    for checksum in [Checksum::Unknown, Checksum::Crc32] {
        let _ = Event::decode(data, checksum);
    }
});

fn read(data: &[u8], columns: &mut Vec<(u64, Vec<Column>)>, outermost: bool) {
    let mut events = Reader::new(data);
    while let Ok(Some(bytes)) = split(&mut events) {
        let packed = bytes.get(4).is_some_and(|kind| PACKED.contains(kind));
        // What grows has twice the room it needs, and what is unpacked is compared to earlier output.
        let more = if packed { 4 * UNPACKED_BYTES_MAX } else { 0 };
        let decoded = bounded(bytes.len() * 64 + 4096 + more, || Event::decode(bytes, Checksum::None));
        let Ok((header, event)) = decoded else { continue };
        assert_eq!(header.size as usize, bytes.len());
        assert!(!cuts(bytes).any(|cut| Event::decode(cut, Checksum::None).is_ok()), "a cut event was understood");
        match event {
            Event::TableMap(map) => columns.extend(map.columns.map(|columns| (map.id, columns))),
            Event::Rows(rows) => read_rows(&rows, columns, bytes.len() + more),
            Event::Payload(Some(events)) if outermost => read(&events, columns, false),
            _ => {}
        }
    }
}

fn read_rows(rows: &Rows<'_>, columns: &[(u64, Vec<Column>)], bytes_max: usize) {
    let Some((_, columns)) = columns.iter().rev().find(|(id, _)| *id == rows.table) else { return };
    let Ok(Some(images)) = rows.images(columns) else { return };
    for (at, image) in images.enumerate() {
        assert!(at <= bytes_max, "more rows than bytes");
        let Ok(image) = image else { continue };
        let complete = match image {
            Image::Write(row) | Image::Delete(row) => row.len() == columns.len(),
            Image::Update(old, new) => {
                let text: usize = new.iter().map(|cell| if let Cell::Text(text) = cell { text.len() } else { 0 }).sum();
                assert!(text <= 2 * bytes_max + 80 * columns.len(), "more text than bytes");
                old.len() == columns.len() && new.len() == columns.len()
            }
        };
        assert!(complete, "a row of another width");
    }
}
