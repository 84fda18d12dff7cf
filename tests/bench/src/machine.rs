//! What the kernel knows about a process and about the machine.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use sanlock_conformance::host::pid_of;

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Processor time of all its threads, ended ones included.
    pub cpu: Duration,
    /// Bytes it had read from block devices (`read_bytes` in `/proc/PID/io`): pages in memory and file systems in user space
    /// do not count.
    pub read_bytes: u64,
}

impl Used {
    /// Of process `pid`.
    ///
    /// # Panics
    /// When it has ended or may not be looked at.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self { cpu: cpu_time(pid), read_bytes: io_field(pid, "read_bytes:") }
    }

    /// What was used between `earlier` and this.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
        }
    }
}

fn cpu_time(pid: u32) -> Duration {
    let clock = clock_getcpuclockid(pid_of(pid)).unwrap_or_else(|error| panic!("clock of {pid}: {error}"));
    Duration::from(clock_gettime(clock).unwrap_or_else(|error| panic!("time of {pid}: {error}")))
}

fn io_field(pid: u32, key: &str) -> u64 {
    let path = format!("/proc/{pid}/io");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    field(&text, key).unwrap_or_else(|| panic!("{path} has no {key}"))
}

/// Counts the context switches of a process. The kernel keeps them for each thread and forgets them with it, so a process with
/// short-lived threads has to be looked at often.
#[derive(Debug)]
pub struct Switches {
    pid: u32,
    /// Count of each thread when it was last looked at.
    threads: HashMap<u32, u64>,
    total: u64,
}

impl Switches {
    /// Counts from now on.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let mut counter = Self { pid, threads: HashMap::new(), total: 0 };
        counter.look();
        counter.total = 0;
        counter
    }

    /// Adds what has happened since the last look.
    pub fn look(&mut self) {
        let now: HashMap<u32, u64> = threads(self.pid).collect();
        let news = now.iter().map(|(thread, count)| {
            // A number that begins anew is another thread with the same id.
            let before = self.threads.get(thread).filter(|before| *before <= count);
            count - before.unwrap_or(&0)
        });
        self.total += news.sum::<u64>();
        self.threads = now;
    }

    /// What was counted up to the last look.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// The threads of a process and their context switches so far.
fn threads(pid: u32) -> impl Iterator<Item = (u32, u64)> {
    let path = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    // A thread may end while it is looked for.
    tasks.filter_map(|task| {
        let task = task.ok()?;
        let text = fs::read_to_string(task.path().join("status")).ok()?;
        let count = field(&text, "voluntary_ctxt_switches:")? + field(&text, "nonvoluntary_ctxt_switches:")?;
        Some((task.file_name().to_str()?.parse().ok()?, count))
    })
}

/// The number behind `key` at the beginning of a line.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Resident memory of process `pid`, in KiB.
///
/// # Panics
/// When it has ended.
#[must_use]
pub fn resident_kib(pid: u32) -> u64 {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    field(&text, "VmRSS:").unwrap_or_else(|| panic!("{path} has no VmRSS"))
}

/// Memory of process `pid` and all its descendants in KiB, pages that several of them share counted once (`Pss`).
///
/// # Panics
/// When the process has ended.
#[must_use]
pub fn family_kib(pid: u32) -> u64 {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let own = field(&text, "Pss:").unwrap_or_else(|| panic!("{path} has no Pss"));
    own + children(pid).into_iter().map(family_kib).sum::<u64>()
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Mean number of runnable tasks during the last minute.
#[must_use]
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

/// Version of the kernel.
#[must_use]
pub fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Processors that this process may use.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

/// Seconds of the monotonic clock.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn monotonic_seconds() -> f64 {
    let now =
        clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or_else(|error| panic!("monotonic clock: {error}"));
    Duration::from(now).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_has_used_more() {
        let pid = std::process::id();
        let before = Used::of(pid);
        let mut sum = 0_u64;
        while Used::of(pid).since(before).cpu < Duration::from_millis(5) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(Used::of(pid).cpu > before.cpu && sum > 0);
    }

    #[test]
    fn switches_of_threads_that_have_ended_stay_counted() {
        let mut switches = Switches::of(std::process::id());
        let (wake, woken) = std::sync::mpsc::channel();
        let (say, said) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            for () in woken {
                let _ = say.send(());
            }
        });
        for _ in 0..50 {
            wake.send(()).unwrap();
            said.recv().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        switches.look();
        let counted = switches.total();
        assert!(counted >= 50, "{counted}");
        drop(wake);
        thread.join().unwrap();
        switches.look();
        assert!(switches.total() >= counted);
    }

    #[test]
    fn memory_of_this_process_is_known() {
        let pid = std::process::id();
        assert!(resident_kib(pid) > 100);
        assert!(family_kib(pid) > 100);
    }

    #[test]
    fn a_field_is_found_by_its_key() {
        let text = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t12\n";
        assert_eq!(field(text, "voluntary_ctxt_switches:"), Some(12));
        assert_eq!(field(text, "VmRSS:"), None);
    }
}
