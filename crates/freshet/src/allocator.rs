//! The memory that the process has taken since its start.
//!
//! The weights of entries do not include freed blocks, tables and buffers. The allocator knows how many pages it
//! uses, and the kernel how many pages are resident. Neither counts pages that were never written, as in tables with
//! free capacity, nor pages of the program file.

use freshet_proxy::Taken;
use tikv_jemalloc_ctl::{epoch, stats};

/// The memory of the process at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start(Taken);

impl Start {
    /// To be called before anything is cached.
    pub(crate) fn now() -> Self {
        Self(taken().unwrap_or_default())
    }

    /// Bytes taken since then; None if unknown.
    pub(crate) fn taken_since(self) -> Option<Taken> {
        let Taken { used, resident } = taken()?;
        Some(Taken { used: used.saturating_sub(self.0.used), resident: resident.saturating_sub(self.0.resident) })
    }
}

fn taken() -> Option<Taken> {
    epoch::advance().ok()?;
    let used = stats::active::read().ok()?.checked_add(stats::metadata::read().ok()?)? as u64;
    let resident = resident().unwrap_or(used);
    Some(Taken { used: used.min(resident), resident })
}

/// Bytes that are resident and belong to no file: `proc_pid_statm(5)`.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map_while(|pages| pages.parse::<u64>().ok());
    let (all, files) = (pages.next()?, pages.next()?);
    Some(all.saturating_sub(files) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_noticed() {
        let start = Start::now();
        let block = vec![1u8; 64 << 20];
        let taken = start.taken_since();
        // The tests may use another allocator, for which only the resident memory is known. Concurrent tests allocate and free a little meanwhile.
        let is_noticed = |taken: Taken| (60 << 20..128 << 20).contains(&taken.resident) && taken.used <= taken.resident;
        assert!(taken.is_none_or(is_noticed) || !cfg!(target_os = "linux"), "{taken:?}");
        assert_eq!(block.iter().map(|byte| usize::from(*byte)).sum::<usize>(), block.len());
    }
}
