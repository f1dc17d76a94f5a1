//! The deterministic cache engine: store, flights, dependency index, freshness.
