//! Histograms as text: HdrHistogram's V2 encoding, zlib-deflated, in base64.
//!
//! The document contains all counts, so any quantile can be computed from it later, and rounds can be merged. The text has the form of HdrHistogram's
//! own logs (it begins with `HIST`). So other implementations can read it: Java's `Histogram.decodeFromCompressedByteBuffer` after a base64 decoder,
//! Python's `HdrHistogram.decode`, JavaScript's `decodeFromCompressedBase64`, Go's `hdrhistogram.Decode`.

use anyhow::{Context, Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};

/// The text in the JSON document.
pub fn encode(histogram: &Histogram<u64>) -> Result<String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).map_err(|error| anyhow!("a histogram: {error:?}"))?;
    Ok(STANDARD.encode(bytes))
}

/// Decodes the text. An empty text is an error.
pub fn decode(text: &str) -> Result<Histogram<u64>> {
    let bytes = STANDARD.decode(text).context("a histogram that is not base64")?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|error| anyhow!("a broken histogram: {error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_counts_come_back() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        for value in [0, 1, 1, 1_000, 123_456, 60_000_000_000] {
            histogram.record(value).unwrap();
        }
        let text = encode(&histogram).unwrap();
        assert!(text.starts_with("HIST"), "{text}");
        assert_eq!(decode(&text).unwrap(), histogram);
        let empty = Histogram::<u64>::new_with_bounds(1, 1_000_000, 2).unwrap();
        assert_eq!(decode(&encode(&empty).unwrap()).unwrap(), empty);
    }

    #[test]
    fn broken_texts_are_errors() {
        for broken in ["", "HIST", "not base64!", "AAAA"] {
            assert!(decode(broken).is_err(), "{broken:?}");
        }
    }
}
