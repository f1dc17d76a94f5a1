//! The machine, and the limits of a running Freshet, from /proc.

use std::fmt::Write as _;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// System, cores and memory.
pub(super) fn machine() -> String {
    let unknown = || "unknown".to_owned();
    let read = |path: &str| read_to_string(path).map_or_else(|_| unknown(), |text| text.trim().to_owned());
    let release = read("/etc/os-release");
    let name =
        release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown").trim_matches('"');
    let cores = std::thread::available_parallelism().map_or_else(|_| unknown(), |cores| cores.to_string());
    let memory = lines_of(Path::new("/proc/meminfo"), &["MemTotal", "MemAvailable", "SwapTotal"]);
    format!(
        "system: {name}, Linux {}\ncores: {cores}\n{memory}cgroup memory.max: {}\ncgroup cpu.max: {}\nload: {}",
        read("/proc/sys/kernel/osrelease"),
        read("/sys/fs/cgroup/memory.max"),
        read("/sys/fs/cgroup/cpu.max"),
        read("/proc/loadavg"),
    )
}

/// The limits of this process, and those of each running server.
pub(super) fn limits() -> String {
    let mut text = format!("this process:\n{}", lines_of(Path::new("/proc/self/limits"), &["Max open files"]));
    let somaxconn = read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    let _ = writeln!(text, "net.core.somaxconn: {}", somaxconn.trim());
    for process in servers() {
        let _ = writeln!(text, "freshet serve, process {}:", process.file_name().unwrap_or_default().display());
        let limits = lines_of(&process.join("limits"), &["Max open files", "Max locked memory", "Max address space"]);
        let status = lines_of(&process.join("status"), &["Uid", "Threads", "VmRSS", "VmHWM"]);
        let open = read_dir(process.join("fd"))
            .map_or("unknown (another user's)".to_owned(), |files| files.count().to_string());
        let _ = writeln!(text, "{limits}{status}open files: {open}");
    }
    text
}

/// The directories of the running servers in /proc.
fn servers() -> Vec<PathBuf> {
    let is_server = |process: &PathBuf| {
        let is_freshet = read_to_string(process.join("comm")).is_ok_and(|name| name.trim() == "freshet");
        is_freshet && read_to_string(process.join("cmdline")).is_ok_and(|line| line.split('\0').nth(1) == Some("serve"))
    };
    let entries = read_dir("/proc").into_iter().flatten().flatten();
    let mut servers: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_server).collect();
    servers.sort();
    servers
}

/// The lines that begin with these words.
fn lines_of(path: &Path, names: &[&str]) -> String {
    let text = read_to_string(path).unwrap_or_default();
    let found = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    found.fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "{}", line.split_whitespace().collect::<Vec<_>>().join(" "));
        out
    })
}
