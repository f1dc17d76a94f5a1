//! Describes the machine and each target, so that the figures can be explained later.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use procfs::{CpuInfo, Current as _, LoadAverage, Meminfo};

use super::{Process, counters, lines, sockets};
use crate::result::{Machine, TargetInfo};
use crate::target::{Family, Kind, Target};

/// The description of this machine. Facts that cannot be read are empty.
pub fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let release = read("/etc/os-release");
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).map(|name| name.trim_matches('"'));
    let kernel = format!("{} {}", read("/proc/sys/kernel/ostype").trim(), read("/proc/sys/kernel/osrelease").trim());
    // Autogroups affect how processors are shared between a server with a process for each connection and one with threads.
    let grouped = read("/proc/sys/kernel/sched_autogroup_enabled").trim() == "1";
    let kernel = if grouped { format!("{kernel} with autogroups") } else { kernel };
    let system = name.map_or(kernel.clone(), |name| format!("{name}, {kernel}"));
    let model = CpuInfo::current().ok().and_then(|processors| processors.model_name(0).map(str::to_owned));
    Machine {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        processor: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        memory: Meminfo::current().map(|memory| memory.mem_total).unwrap_or_default(),
        system,
        load_average: LoadAverage::current().map_or(0.0, |load| load.one.into()),
    }
}

/// PostgreSQL's settings that affect the cost of a read or a write.
const POSTGRES_SETTINGS: &str = "SELECT name, current_setting(name) FROM pg_settings WHERE name IN (\
    'shared_buffers', 'effective_cache_size', 'work_mem', 'wal_level', 'synchronous_commit', 'fsync', 'max_connections', \
    'jit', 'max_parallel_workers_per_gather', 'default_transaction_isolation', 'ssl')";

/// The settings of MySQL and MariaDB.
const MYSQL_SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_buffer_pool_size', 'query_cache_type', \
    'query_cache_size', 'sync_binlog', 'innodb_flush_log_at_trx_commit', 'log_bin', 'binlog_format', 'max_connections', \
    'transaction_isolation', 'tx_isolation')";

/// Version and relevant settings of a target. Behind a cache, they are what the cache answers. An unreachable target is an error. Settings that it
/// does not show are left out.
pub async fn target_info(target: &Target, processes: &[Process]) -> Result<TargetInfo> {
    let (version, mut settings) = match &target.kind {
        Kind::Sql(family) => sql(target, *family).await?,
        Kind::Memcached(place) => (memcached(place)?, BTreeMap::new()),
        Kind::Redis(place) => {
            let values = lines::redis(place)?;
            let named = |name, program| values.get(name).map(|version| format!("{program} {version}"));
            // Valkey also reports the version of Redis that it is compatible with.
            let version = named("valkey_version", "Valkey").or_else(|| named("redis_version", "Redis"));
            let kept = ["maxmemory_human", "maxmemory_policy"];
            let settings = kept.iter().filter_map(|name| Some(((*name).to_owned(), values.get(*name)?.clone())));
            (version.context("no version in the answer to INFO")?, settings.collect())
        }
        Kind::Echo(place) => {
            lines::connect(place.split('/').next().unwrap_or(place), 0)?;
            ("echo".to_owned(), BTreeMap::new())
        }
    };
    if let Some(place) = &target.lookaside {
        settings.insert("look-aside".to_owned(), memcached(place)?);
    }
    let pid = target.address().and_then(|(host, port)| sockets::listener(&host, port));
    let process = processes.iter().find(|process| Some(process.pid) == pid).map(|process| process.name.clone());
    Ok(TargetInfo { name: target.name.clone(), url: target.shown_url(), version, settings, process })
}

async fn sql(target: &Target, family: Family) -> Result<(String, BTreeMap<String, String>)> {
    let asked = if family == Family::Postgres { POSTGRES_SETTINGS } else { MYSQL_SETTINGS };
    let mut answers = counters::answers(target, &["SELECT version()", asked]).await?.into_iter();
    let version = answers.next().context("no answer")??;
    let version = version.into_iter().flatten().next().context("no version")?;
    let pair = |row: Vec<String>| {
        let mut values = row.into_iter();
        Some((values.next()?, values.next()?))
    };
    let settings = answers.next().and_then(Result::ok).unwrap_or_default();
    Ok((version, settings.into_iter().filter_map(pair).collect()))
}

fn memcached(place: &str) -> Result<String> {
    let values = lines::memcached(place)?;
    Ok(format!("memcached {}", values.get("version").context("no version in memcached's statistics")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_what_it_is() {
        let machine = machine();
        assert!(machine.cores > 0 && machine.memory > 1 << 20, "{machine:?}");
        assert!(machine.system.contains("Linux") && !machine.processor.is_empty(), "{machine:?}");
    }
}
