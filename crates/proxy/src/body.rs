//! What an entry of the cache holds: the answer's frames, ready for the wire.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_cache::Payload;

use crate::registry::Shape;

/// `RowDescription` if the client asked for it, `DataRow`s, `CommandComplete`.
///
/// `ParseComplete`, `BindComplete` and `ReadyForQuery` belong to the conversation and are added for each hit.
#[derive(Debug)]
pub struct Body {
    pub(crate) frames: Box<[u8]>,
    pub(crate) shape: Arc<Shape>,
}

impl Body {
    pub(crate) fn new(frames: Vec<u8>, shape: Arc<Shape>) -> Self {
        shape.figures.entries.fetch_add(1, Relaxed);
        Self { frames: frames.into(), shape }
    }

    /// The answer's frames.
    pub fn frames(&self) -> &[u8] {
        &self.frames
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.shape.figures.entries.fetch_sub(1, Relaxed);
    }
}

impl Payload for Body {
    fn heap_bytes(&self) -> usize {
        self.frames.len()
    }
}
