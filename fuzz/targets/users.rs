//! Verifiers and the users file: what is read is written the same again, and no error repeats what may be a password.

#![no_main]

#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/proxy/src/server/access/users_file.rs"]
mod users;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use freshet_fuzz::bounded;
use freshet_net::postgres::secret::Verifier;
use libfuzzer_sys::fuzz_target;
use users::UsersFile;

static PATH: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("freshet-fuzz-users-{}", std::process::id())));

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        verifier(text);
    }
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&*PATH).expect("a file");
    file.write_all(data).expect("it is written");
    match bounded(data.len() * 32 + 8192, || UsersFile::of_verifiers(&PATH)) {
        Ok(_) => {}
        Err(error) => quiet(&error.to_string(), data),
    }
    let _ = std::fs::remove_file(&*PATH);
});

fn verifier(text: &str) {
    match bounded(text.len() * 8 + 1024, || Verifier::parse(text)) {
        Ok(Verifier::Scram(read)) => {
            let written = read.to_string();
            let Ok(Verifier::Scram(again)) = Verifier::parse(&written) else { panic!("{written} is not read again") };
            assert_eq!(again.to_string(), written);
            assert_eq!(format!("{read:?}"), "***");
        }
        Ok(Verifier::Md5(_)) => assert!(text.len() == 35 && text.is_ascii()),
        Err(error) => quiet(&error.to_string(), text.as_bytes()),
    }
}

/// No word of a text of its own (longer than those of the messages) is in the error.
fn quiet(error: &str, text: &[u8]) {
    for word in text.split(|byte| !byte.is_ascii_alphanumeric()).filter(|word| word.starts_with(b"hunter")) {
        let word = String::from_utf8_lossy(word);
        assert!(!error.contains(&*word), "{error}");
    }
}
