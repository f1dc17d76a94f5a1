//! Events that MySQL 8.0.15 and MariaDB 10.11 wrote. The transaction payloads, which MySQL writes from 8.0.20 on, consist of such events, compressed
//! by zstd 1.5.

use freshet_types::{Cell, GtidSet, Row};

use super::*;
use crate::mysql::integers::{put_lenenc, put_lenenc_bytes};

/// `CREATE TABLE c (id INT UNSIGNED PRIMARY KEY, v VARCHAR(30), d DECIMAL(5, 2))` under `binlog_row_metadata = FULL`.
const MYSQL_TABLE_MAP: &str = "89a9026b1301000000490000009e0200000000560000000000010007667265736865740001630003030ff60478\
    000502060101800203fcff000407026964017601640801004aa695bf";
/// `INSERT INTO c VALUES (1, 'ccc', -1.5)`
const MYSQL_WRITE: &str =
    "89a9026b1e010000002f000000cd02000000005600000000000100020003ff0001000000036363637ffecd0aaa6a52";
/// `UPDATE c SET v = 'd'`
const MYSQL_UPDATE: &str = "89a9026b1f010000003a0000001504000000005600000000000100020003ffff0001000000036363637ffecd00010000\
    0001647ffecd4d9f92c0";
/// `DELETE FROM c`
const MYSQL_DELETE: &str = "89a9026b20010000002d0000004705000000005600000000000100020003ff000100000001647ffecdd0e0eda3";
const MYSQL_GTID: &str = "89a9026b21010000004d00000010010000000001879e0f17e64b11f1a12e02fc000000010a0000000000\
    000002000000000000000001000000000000004fab685fd96006f58f3801004bf32973";
const MYSQL_FORMAT: &str = "89a9026b0f01000000780000007c00000000000400382e302e31350000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000000013000d0008000000000400040000006000041a080000\
    00080808020000000a0a0a2a2a001234000a0164a41064";
/// `UPDATE j SET doc = JSON_SET(doc, '$.a', 'x')` under `binlog_row_value_options = PARTIAL_JSON`.
const MYSQL_PARTIAL: &str = "89a9026b270100000061000000cd08000000005700000000000100020002ffff00010000002000000\
    00002001f0012000100130001000c140005020061620a3031323334353637383901010001000000090000000003242e61030c0178d6ab7a6\
    f";
/// `CREATE OR REPLACE TABLE c(id int primary key, v varchar(30))` under `log_bin_compress`.
const MARIADB_QUERY: &str = "88a9026ba501000000920000003702000000000e00000000000000070000230000000000010100002\
    054000000000603737464042d002d000800814b000000000000006672657368657400813c789c05c1410a80300c04c0afecb1050f822f5a6\
    3c060ab650985fede1993331d9f201f8de6489ecd61252ec49b188a4e2d3cbe364c4cca6eaa1c7bad3f927814b047baf683";
/// `UPDATE c SET v = REPEAT('d', 20)`
const MARIADB_UPDATE: &str = "88a9026ba7010000003a000000ef030000000017000000000001000203038134789cfbc3c8c0c020\
    928c05fc01cba4600100befd11af6da9c31e";
const MARIADB_GTID: &str = "88a9026ba2010000002a0000006102000008001600000000000000000000000c00000000000069d70b\
    11";

/// BEGIN, the table map, the insert and XID, without checksums.
const PAYLOAD: &str = "89a9026b02010000004a0000005502000008000e000000000000000700001d000000000000012000a04500000000060373746404\
    2d002d00ff0012ff006672657368657400424547494e89a9026b1301000000450000009e02000000005600000000000100076672657368657400016300\
    03030ff60478000502060101800203fcff0004070269640176016408010089a9026b1e010000002b000000cd02000000005600000000000100020003ff\
    0001000000036363637ffecd89a9026b10010000001b000000ec02000000002400000000000000";
const PAYLOAD_ZSTD: &str = "28b52ffd0458e50400c20a222a804bd21ad849310312032ba7450c5ed0b6b0e164b06daf0895406cc9a556bc067620a1aa91d6\
    c8963205ff048e17dc04a093a2cb07c65a4bdd4eea5dae703b804e8a9ae4310b7b28ae614e1eea32cc220779c17404287559d346fc69dcb9114027450f\
    0d0cce420b65a242a990380d9c4e4e98c752519177362258839b00251fc41d6e079d140506003a15dc91700a53e414c406f71dc01d5b64177a";

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// An event of this type, without a checksum.
fn event(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.push(kind);
    out.extend([1, 0, 0, 0]);
    out.extend((HEADER_BYTES as u32 + body.len() as u32).to_le_bytes());
    out.extend([0; 6]);
    out.extend(body);
    out
}

fn text(row: &Row) -> String {
    let cell = |cell: &Cell| match cell {
        Cell::Null => "-".to_owned(),
        Cell::Absent => "?".to_owned(),
        Cell::Unchanged => "=".to_owned(),
        Cell::Text(text) => String::from_utf8_lossy(text).into_owned(),
    };
    row.iter().map(cell).collect::<Vec<_>>().join(",")
}

fn images(bytes: &[u8], columns: &[Column]) -> Vec<String> {
    let (_, event) = Event::decode(bytes, Checksum::Crc32).unwrap();
    let Event::Rows(rows) = event else { panic!("{event:?}") };
    let image = |image: Result<Image, Malformed>| match image.unwrap() {
        Image::Write(new) => format!("+{}", text(&new)),
        Image::Update(old, new) => format!("{}>{}", text(&old), text(&new)),
        Image::Delete(old) => format!("-{}", text(&old)),
    };
    rows.images(columns).unwrap().unwrap().map(image).collect()
}

#[test]
fn tables_and_rows_of_mysql() {
    let bytes = unhex(MYSQL_TABLE_MAP);
    let (header, event) = Event::decode(&bytes, Checksum::Crc32).unwrap();
    assert_eq!((header.end, header.size, header.is_artificial()), (0x29e, 73, false));
    let Event::TableMap(map) = event else { panic!("{event:?}") };
    assert_eq!((map.id, map.schema, map.name), (0x56, "freshet", "c"));
    assert_eq!(map.names, Some(vec!["id", "v", "d"]));
    let columns = map.columns.unwrap();
    assert_eq!(
        columns,
        [
            Column { form: Form::Int(4), unsigned: Some(true) },
            Column { form: Form::Text(1), unsigned: None },
            Column { form: Form::Decimal { precision: 5, scale: 2 }, unsigned: Some(false) },
        ]
    );
    assert_eq!(images(&unhex(MYSQL_WRITE), &columns), ["+1,ccc,-1.50"]);
    assert_eq!(images(&unhex(MYSQL_UPDATE), &columns), ["1,ccc,-1.50>1,d,-1.50"]);
    assert_eq!(images(&unhex(MYSQL_DELETE), &columns), ["-1,d,-1.50"]);
    let bytes = unhex(MYSQL_WRITE);
    let (_, Event::Rows(rows)) = Event::decode(&bytes, Checksum::Crc32).unwrap() else { panic!() };
    assert!(rows.images(&columns[..2]).is_err(), "another number of columns");
    // With other column definitions a row ends too early or too late; decoding still ends.
    let wider = [columns[0], columns[0], columns[0]];
    assert!(rows.images(&wider).unwrap().unwrap().any(|image| image.is_err()));
}

#[test]
fn packed_events_of_mariadb() {
    let bytes = unhex(MARIADB_QUERY);
    let (_, event) = Event::decode(&bytes, Checksum::Crc32).unwrap();
    let Event::Query(query) = event else { panic!("{event:?}") };
    assert_eq!(query.schema, b"freshet");
    assert_eq!(&*query.sql, b"create or replace table c(id int primary key, v varchar(30))".as_slice());
    let columns = [Column { form: Form::Int(4), unsigned: None }, Column { form: Form::Text(1), unsigned: None }];
    assert_eq!(images(&unhex(MARIADB_UPDATE), &columns), ["1,cccccccccccccccccccc>1,dddddddddddddddddddd"]);
    let mut bytes = unhex(MARIADB_GTID);
    let gtid = Event::MariadbGtid(MariadbGtid { sequence: 22, domain: 0, flags: 0x0c });
    assert_eq!(Event::decode(&bytes, Checksum::Unknown).unwrap().1, gtid);
    bytes[20] ^= 1;
    assert_eq!(Event::decode(&bytes, Checksum::Crc32).unwrap_err(), Malformed::Invalid("event checksum"));
}

#[test]
fn packed_rows_announce_their_size() {
    // One column, a bitmap, then the compressed rows.
    let rows = |packed: &[u8]| [&[5, 0, 0, 0, 0, 0, 1, 0, 1, 0xff][..], packed].concat();
    let decoded = |packed: &[u8]| Event::decode(&event(166, &rows(packed)), Checksum::None).map(|_| ());
    let zlib = [0x78, 0x9c, 0x4b, 0x4c, 0x04, 0x00, 0x01, 0x25, 0x00, 0xc3];
    assert_eq!(decoded(&[&[0x81, 2][..], &zlib].concat()), Ok(()));
    assert_eq!(decoded(&[&[0x81, 3][..], &zlib].concat()), Err(Malformed::Invalid("unpacked length")));
    assert_eq!(decoded(&[&[0x81, 1][..], &zlib].concat()), Err(Malformed::Invalid("unpacked length")));
    assert_eq!(
        decoded(&[&[0x91, 2][..], &zlib].concat()),
        Err(Malformed::UnknownTag { what: "compression", tag: 0x91 })
    );
    // Larger than the bound: the event has rows, and they are unknown.
    let bytes = event(166, &rows(&[&[0x84, 0xff, 0xff, 0xff, 0xff][..], &zlib].concat()));
    let (_, Event::Rows(rows)) = Event::decode(&bytes, Checksum::None).unwrap() else { panic!() };
    assert_eq!(rows.images(&[Column { form: Form::Int(1), unsigned: None }]).unwrap().map(Iterator::count), None);
}

/// The body of a TRANSACTION_PAYLOAD.
fn payload(compression: u64, data: &[u8], unpacked: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, value) in [(2, compression), (1, data.len() as u64), (3, unpacked as u64)] {
        let mut number = Vec::new();
        put_lenenc(&mut number, value);
        put_lenenc(&mut out, field);
        put_lenenc_bytes(&mut out, &number);
    }
    out.push(0);
    out.extend(data);
    event(40, &out)
}

#[test]
fn transaction_payloads_are_unpacked() {
    let plain = unhex(PAYLOAD);
    for packed in [payload(0, &unhex(PAYLOAD_ZSTD), plain.len()), payload(255, &plain, plain.len())] {
        let (_, event) = Event::decode(&packed, Checksum::None).unwrap();
        let Event::Payload(Some(events)) = event else { panic!("{event:?}") };
        assert_eq!(&*events, plain);
        let mut events = Reader::new(&events);
        let mut kinds = Vec::new();
        while let Some(bytes) = split(&mut events).unwrap() {
            kinds.push(Event::decode(bytes, Checksum::None).unwrap().0.kind);
        }
        assert_eq!(kinds, [2, 19, 30, 16]);
    }
    let cut = payload(0, &unhex(PAYLOAD_ZSTD)[..100], plain.len());
    assert_eq!(Event::decode(&cut, Checksum::None).unwrap_err(), Malformed::Invalid("zstd data"));
    assert!(Event::decode(&payload(7, &plain, 0), Checksum::None).is_err());
}

/// 65 MiB of zeros in 4,000 frames of a few bytes.
#[test]
fn a_payload_that_is_too_large_is_told_as_such() {
    let frame =
        ruzstd::encoding::compress_to_vec(vec![0; 17_000].as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    let packed = payload(0, &frame.repeat(4000), 68_000_000);
    assert_eq!(Event::decode(&packed, Checksum::None).unwrap().1, Event::Payload(None));
}

#[test]
fn what_else_mysql_writes() {
    let bytes = unhex(MYSQL_FORMAT);
    let format = Event::Format { server_version: b"8.0.15", checksum: Checksum::Crc32 };
    // The checksum setting before does not matter.
    for checksum in [Checksum::Unknown, Checksum::None, Checksum::Crc32] {
        assert_eq!(Event::decode(&bytes, checksum).unwrap().1, format);
    }
    let gtid = Event::Gtid { source: 0x879e_0f17_e64b_11f1_a12e_02fc_0000_0001, number: 10 };
    assert_eq!(Event::decode(&unhex(MYSQL_GTID), Checksum::Crc32).unwrap().1, gtid);
    assert_eq!(Event::decode(&unhex(MYSQL_PARTIAL), Checksum::Crc32).unwrap().1, Event::PartialUpdate { table: 0x57 });
    let decoded = |kind, body: &[u8]| Event::decode(&event(kind, body), Checksum::None).map(|(_, e)| format!("{e:?}"));
    assert_eq!(decoded(27, b"binlog.000001").unwrap(), "Heartbeat { offset: None }");
    assert_eq!(
        decoded(41, b"\x01\x03abc\x02\x09\xfe\x05\0\0\0\x01\0\0\0\0").unwrap(),
        "Heartbeat { offset: Some(4294967301) }"
    );
    assert_eq!(decoded(42, b"x").unwrap(), "Unsupported(\"GTIDs with tags\")");
    assert_eq!(decoded(164, b"x").unwrap(), "Unsupported(\"an encrypted binlog\")");
    assert_eq!(decoded(38, &[1, 0]).unwrap(), "XaPrepare { one_phase: true }");
    for (kind, expected) in
        [(34, "AnonymousGtid"), (26, "Incident"), (3, "Stop"), (13, "Statement"), (163, "Information")]
    {
        assert_eq!(decoded(kind, &[]).unwrap(), expected);
    }
    for kind in [0, 1, 6, 7, 8, 10, 12, 15, 20, 21, 22, 43, 100, 159, 172, 255] {
        assert!(decoded(kind, &[0; 100]).is_err(), "{kind}");
    }
}

/// The first event of a dump, before the format: with and without a checksum.
#[test]
fn the_first_rotation_may_have_a_checksum() {
    let plain = event(4, b"\x04\0\0\0\0\0\0\0binlog.000003");
    let rotate = Event::Rotate { offset: 4, file: b"binlog.000003" };
    assert_eq!(Event::decode(&plain, Checksum::Unknown).unwrap().1, rotate);
    let mut summed = event(4, b"\x04\0\0\0\0\0\0\0binlog.000003\0\0\0\0");
    summed.truncate(summed.len() - CHECKSUM_BYTES);
    let mut crc = flate2::Crc::new();
    crc.update(&summed);
    summed.extend(crc.sum().to_le_bytes());
    assert_eq!(Event::decode(&summed, Checksum::Unknown).unwrap().1, rotate);
}

/// Some versions count YEAR as numeric: a sign that depends on this is unknown.
#[test]
fn signs_behind_a_year() {
    let mut body = vec![1, 0, 0, 0, 0, 0, 0, 0, 1, b's', 0, 1, b't', 0, 5];
    // INT, YEAR, INT, INT, INT; no metadata, no nullable column; unsigned: the first, the third and the fourth.
    body.extend([3, 13, 3, 3, 3, 0, 0, 1, 1, 0b1110_0000]);
    let bytes = event(19, &body);
    let (_, Event::TableMap(map)) = Event::decode(&bytes, Checksum::None).unwrap() else { panic!() };
    let signs: Vec<Option<bool>> = map.columns.unwrap().iter().map(|column| column.unsigned).collect();
    assert_eq!(signs, [Some(true), None, Some(true), None, Some(false)]);
}

#[test]
fn dumps_are_asked_for() {
    assert_eq!(dump("binlog.000001", 4, 9), b"\x12\x04\0\0\0\0\0\x09\0\0\0binlog.000001");
    let known = GtidSet::parse("00000000-0000-0000-0000-0000000000ff:1-5:7").unwrap();
    let mut expected = unhex("1e 0000 09000000 00000000 0400000000000000 40000000 0100000000000000");
    expected.extend(unhex("000000000000000000000000000000ff 0200000000000000"));
    expected.extend(unhex("0100000000000000 0600000000000000 0700000000000000 0800000000000000"));
    // 8 + 16 + 8 + 2 × 16 bytes of set.
    assert_eq!(dump_gtid(&known, 9), expected);
    assert_eq!(Packet::decode(&[0, 1, 2]), Ok(Packet::Event(&[1, 2])));
    assert_eq!(Packet::decode(&[0xfe, 0, 0, 2, 0]), Ok(Packet::End));
    assert!(Packet::decode(&[]).is_err() && Packet::decode(&[1]).is_err());
}
