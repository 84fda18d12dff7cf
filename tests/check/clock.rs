//! Clocks that are run too fast or too slow: a kernel that says so is played by a preloaded object.

use crate::system::{FINE, System, WARNINGS, skipped, told};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const KERNEL: &str = r#"
#include <stdlib.h>
#include <sys/timex.h>
int adjtimex(struct timex *t) {
    if (t->modes != 0 || !getenv("TICK") || !getenv("FREQ")) abort();
    t->tick = atol(getenv("TICK"));
    t->freq = atol(getenv("FREQ"));
    return TIME_ERROR;
}
"#;

/// The object; `None` without a compiler.
fn kernel() -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("adjtimex.{}.so", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-x", "c", "-o"]).arg(&path).arg("-").stdin(Stdio::piped());
    let Ok(mut compiler) = compiler.spawn() else {
        skipped("there is no C compiler (package gcc)");
        return None;
    };
    compiler.stdin.take().unwrap().write_all(KERNEL.as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success());
    Some(path)
}

/// This machine, which is fine but for what its kernel says.
fn this_machine() -> System {
    let system = System::good();
    system.write(
        "proc/sys/kernel/random/boot_id",
        &fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap(),
    );
    system
}

#[test]
fn clocks_that_are_run_too_fast_or_too_slow() {
    let Some(kernel) = kernel() else { return };
    let check = |system: &System, tick: i64, freq: i64, options: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        command.env("LD_PRELOAD", &kernel).env("TICK", tick.to_string()).env("FREQ", freq.to_string());
        system.check_by(command, None, options)
    };
    let system = this_machine();
    // Left alone, an ordinary correction, and chrony with the limit that is advised.
    for (tick, freq) in [(10_000, 0), (10_000, -(500 << 16)), (10_010, 80 << 16), (10_028, 21 << 16)] {
        told(&check(&system, tick, freq, &[]), FINE, "");
    }
    let text = told(&check(&system, 10_833, 33 << 16, &[]), WARNINGS, "clock-rate");
    assert!(text.contains("83333 ppm (8.33 %) faster") && text.contains("2821 ppm may be borne"), "{text}");
    assert!(text.contains("'maxslewrate 1000'"), "{text}");
    let text = told(&check(&system, 9_971, 0, &[]), WARNINGS, "clock-rate");
    assert!(text.contains("2900 ppm (0.29 %) slower"), "{text}");
    // What may be borne depends on the timeouts.
    told(&check(&system, 10_010, 0, &["--io-timeout", "60"]), WARNINGS, "clock-rate");
    told(&check(&system, 10_030, 0, &["--io-timeout", "5"]), FINE, "");
    // The files are of another machine, or of another boot.
    system.write("proc/sys/kernel/random/boot_id", "3f0c7d39-0000-4000-8000-000000000000\n");
    told(&check(&system, 10_833, 0, &[]), FINE, "");
    fs::remove_file(kernel).unwrap();
}
