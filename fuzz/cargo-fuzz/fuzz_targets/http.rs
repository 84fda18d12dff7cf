#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| sanlock_fuzz::run("http", data));
