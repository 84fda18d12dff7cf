//! A panic is a fault of this program, in whichever thread it happens, and ends all of it at once: a daemon without the thread that saves
//! records, renews a lockspace or works on leases would go on as if it were whole. The watchdog then does what it is for.

use std::panic;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::alarm;
use sanlock_sys::child::take_default;
use sanlock_sys::thread;

use crate::log::Log;

/// How long the end waits for the last log lines.
const LOG_FLUSH: Duration = Duration::from_millis(500);
/// Seconds after which the process ends in any case: whoever panicked may hold what the log needs, and stderr may lead to nobody who reads.
const END_SECONDS: u32 = 2;

/// From now on a panic is logged and ends the process. Children that were forked before are not concerned.
pub(crate) fn end_with_a_panic(log: Log) {
    // SIGALRM, which nobody here handles, and whoever has started this process may have ignored.
    let _ = take_default(Signal::SIGALRM);
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let _ = alarm::set(END_SECONDS);
        let name = thread::name().unwrap_or_default();
        log.error(format_args!(
            "fault in thread {}, the daemon ends at once: {}",
            name.to_string_lossy(),
            panic.to_string().replace('\n', " ")
        ));
        log.sync();
        default(panic);
        log.flush(LOG_FLUSH);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    /// What the test runs in a process of its own: a thread panics, and nobody waits for it.
    #[test]
    #[ignore = "ends the process"]
    fn a_process_whose_thread_panics() {
        end_with_a_panic(Log::in_memory());
        thread::spawn("falls", 128 << 10, || panic!("on purpose")).unwrap();
        std::thread::sleep(Duration::from_secs(60));
    }

    #[test]
    fn a_panic_in_any_thread_ends_the_process_at_once() {
        let begin = Instant::now();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fault::tests::a_process_whose_thread_panics", "--ignored", "--nocapture"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}");
        assert!(begin.elapsed() < Duration::from_secs(30), "it did not wait for the end of its main thread");
    }
}
