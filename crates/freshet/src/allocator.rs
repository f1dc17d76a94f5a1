//! How much memory the process has taken since its start.
//!
//! What entries weigh says nothing of the holes that they leave when they go, of tables and buffers and of the program's own
//! pages. The allocator knows in how many pages something lives. Pages that it keeps for what comes next are not among them: it
//! gives them back by itself within seconds, and to evict entries for their sake would make more of them. Nor are those that were
//! never written to, as in tables with room: so no more is taken than is resident.

use tikv_jemalloc_ctl::{epoch, stats};

/// The process at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    bytes: u64,
}

impl Start {
    /// To be called before anything is cached.
    pub(crate) fn now() -> Self {
        Self { bytes: taken().unwrap_or_default() }
    }

    /// Bytes taken since then; None: nobody knows.
    pub(crate) fn bytes_since(self) -> Option<u64> {
        Some(taken()?.saturating_sub(self.bytes))
    }
}

fn taken() -> Option<u64> {
    epoch::advance().ok()?;
    let bytes = stats::active::read().ok()?.checked_add(stats::metadata::read().ok()?)? as u64;
    Some(resident().map_or(bytes, |(all, files)| all.min(bytes + files)))
}

/// Bytes that are resident, and of these what is of files, which are the program's: `proc_pid_statm(5)`.
fn resident() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1);
    let mut bytes = || Some(pages.next()?.parse::<u64>().ok()? * rustix::param::page_size() as u64);
    Some((bytes()?, bytes()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_noticed() {
        let start = Start::now();
        let block = vec![1u8; 64 << 20];
        let taken = start.bytes_since();
        // The tests' own allocator may be another, of which nothing is known.
        assert!(taken.is_none_or(|bytes| bytes < 128 << 20), "{taken:?}");
        assert_eq!(block.iter().map(|byte| usize::from(*byte)).sum::<usize>(), block.len());
        let resident = resident();
        assert!(
            resident.is_some_and(|(all, files)| all > files && files > 0) || !cfg!(target_os = "linux"),
            "{resident:?}"
        );
    }
}
