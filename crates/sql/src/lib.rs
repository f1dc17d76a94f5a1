//! Statement text to verdict, footprint and tags; the only importer of the SQL parser.
