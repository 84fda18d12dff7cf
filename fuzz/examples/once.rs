//! Runs one input of one target: `cargo run -p sanlock-fuzz --example once -- TARGET FILE`.

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(target), Some(file)) = (args.next(), args.next()) else {
        eprintln!("usage: once TARGET FILE");
        std::process::exit(2);
    };
    sanlock_fuzz::run(&target, &std::fs::read(file)?);
    Ok(())
}
