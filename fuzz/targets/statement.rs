//! MySQL's statements with attributes and bound parameters: what is read lies in the message, in its order, and takes
//! memory in proportion to it.

#![no_main]

use freshet_fuzz::{bounded, cuts};
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::result::{Form, column_name, text_row};
use freshet_wire::mysql::rows::Rows;
use freshet_wire::mysql::statement::{Execute, Query, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(([parameters, columns], message)) = data.split_first_chunk::<2>() else { return };
    for capabilities in [Capabilities(0), Capabilities::QUERY_ATTRIBUTES] {
        // Two bytes announce a value, which takes 32; a list that grows holds three times what is in it.
        let limit = message.len() * 64 + 512;
        if let Ok(query) = bounded(limit, || Query::parse(message, capabilities)) {
            assert!(message.ends_with(query.text));
        }
        let Ok(execute) = bounded(256, || Execute::parse(message)) else { continue };
        assert!(message.ends_with(execute.tail));
        let parameters = u16::from(*parameters);
        if let Ok(bound) = bounded(limit, || execute.bind(parameters, capabilities, None)) {
            assert_eq!(bound.values.len(), usize::from(parameters));
            assert!(parameters == 0 || bound.types.len() >= usize::from(parameters) * 2);
            in_order(message, &bound.values);
            let again =
                execute.bind(parameters, capabilities, Some(&bound.types)).expect("types of its own are ignored");
            assert_eq!(again, bound);
            let cut_short = cuts(message).any(|cut| {
                let cut = Execute::parse(cut).and_then(|execute| execute.bind(parameters, capabilities, None));
                parameters > 0 && cut.is_ok()
            });
            assert!(!cut_short, "a cut message was understood");
        }
    }
    let row = bounded(message.len() * 64 + 256, || text_row(message, u64::from(*columns)));
    if let Ok(row) = row {
        assert_eq!(row.len(), usize::from(*columns));
    }
    let _ = bounded(256, || column_name(message));
    for form in [Form::Text, Form::Binary] {
        let _ = bounded(message.len() * 128 + 512, || {
            let rows = Rows::of(message, Capabilities::DEPRECATE_EOF, form).ok()?;
            rows.packets().last().and_then(|row| rows.values(row).ok()).map(|values| values.len())
        });
    }
});

/// The strings stand in the message one behind the other.
fn in_order(message: &[u8], values: &[Value<'_>]) {
    let mut from = 0;
    for value in values {
        let (Value::Text(bytes) | Value::Opaque(bytes)) = value else { continue };
        let at = message[from..].windows(bytes.len().max(1)).position(|window| bytes.is_empty() || window == *bytes);
        from += at.unwrap_or(if bytes.is_empty() { 0 } else { usize::MAX }) + bytes.len();
    }
}
