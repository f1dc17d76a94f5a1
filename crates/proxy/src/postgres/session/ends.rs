//! The log end after the session's last answers: when it is asked for, and what it is used for.
//!
//! It is an upper bound on all that those answers show. So it becomes the session's watermark, ends a commit wait, and is the position that the
//! stream must pass before results that were complete by then are served.

use freshet_types::{End, Lsn};

use crate::postgres::session::Session;

impl Session {
    /// The columns of [`crate::postgres::question::end`].
    pub(crate) fn end_read(&mut self, columns: &[Option<&[u8]>], configuration: Option<&[u8]>, notified: bool) {
        let text = |at: usize| columns.get(at).copied().flatten().and_then(|text| std::str::from_utf8(text).ok());
        let end = text(0).and_then(Lsn::parse).map(|lsn| lsn.without_page_header(self.shared.wal_segment_bytes()));
        let flushed = text(2).and_then(Lsn::parse);
        self.watermark.note_flushed(end, flushed);
        let asynchronous = columns.get(1) == Some(&Some(b"off".as_slice()));
        if self.waiting.is_in_commit_wait() {
            self.commit_wait_end_known(end, asynchronous);
        }
        self.end_known(end, configuration, notified);
    }

    /// Installs what is complete and sets the watermark.
    fn end_known(&mut self, end: Option<Lsn>, configuration: Option<&[u8]>, notified: bool) {
        let epoch = self.shared.cache.epoch();
        let Some(lsn) = end else {
            self.complete.discard();
            return;
        };
        // It was asked for before the answer came, so the current epoch is an upper bound; a reconnect only makes it useless.
        if !notified {
            self.watermark.set_end(epoch.map(|epoch| End { epoch, lsn }));
        }
        let Some(started) = self.complete.started() else {
            self.complete.set_proof(None);
            return;
        };
        if configuration.is_none() || configuration != self.server.settings.configuration.as_deref().map(str::as_bytes)
        {
            // The context was read under another configuration: the answer belongs to no known key.
            self.complete.discard();
            self.settings_changed();
            return;
        }
        self.server.settings.configured_at = started; // it was asked for after them
        let shared = self.shared.clone();
        for complete in self.complete.take() {
            // Without an epoch there is no stream, and nothing is cached.
            if let Some(epoch) = epoch {
                shared.install(complete, End { epoch, lsn });
            }
        }
    }

    /// The unit's results wait for the next log-end probe of the lease service, unless the configuration may have changed.
    pub(crate) fn results_await_end(&mut self) {
        let shared = self.shared.clone();
        let known = shared.reloads.cover(self.server.settings.configured_at);
        self.complete.take().filter(|_| known).for_each(|complete| shared.await_end(complete));
        shared.want_log_end_soon();
    }
}
