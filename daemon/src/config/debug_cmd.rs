//! `debug_cmd`: which requests are logged when they arrive (command-line.md 10.3).

use crate::conf::excerpt;

/// Names by bit, which is the request number. Bit 0 and the gaps have no name.
const NAMES: [(u32, &str); 40] = [
    (1, "register"),
    (2, "add_lockspace"),
    (3, "rem_lockspace"),
    (4, "shutdown"),
    (5, "status"),
    (6, "log_dump"),
    (7, "acquire"),
    (8, "release"),
    (9, "inquire"),
    (10, "restrict"),
    (11, "request"),
    (12, "align"),
    (13, "examine_lockspace"),
    (14, "examine_resource"),
    (15, "host_status"),
    (16, "inq_lockspace"),
    (17, "killpath"),
    (18, "write_lockspace"),
    (19, "write_resource"),
    (20, "read_lockspace"),
    (21, "read_resource"),
    (22, "get_lockspaces"),
    (23, "get_hosts"),
    (24, "read_resource_owners"),
    (25, "set_lvb"),
    (26, "get_lvb"),
    (27, "convert"),
    (28, "version"),
    (29, "shutdown_wait"),
    (30, "reg_event"),
    (31, "end_event"),
    (32, "set_event"),
    (33, "set_config"),
    (34, "renewal"),
    (35, "format_rindex"),
    (36, "update_rindex"),
    (37, "lookup_rindex"),
    (38, "create_resource"),
    (39, "delete_resource"),
    (40, "rebuild_rindex"),
];

/// Frequent requests that are not logged unless asked for.
const QUIET: [u32; 7] = [16, 19, 20, 21, 22, 23, 24];

/// All bits but those of frequent requests: 0xfffffffffe06ffff.
pub(super) const DEFAULT_MASK: u64 = {
    let mut mask = u64::MAX;
    let mut i = 0;
    while i < QUIET.len() {
        mask &= !(1 << QUIET[i]);
        i += 1;
    }
    mask
};

const _: () = assert!(DEFAULT_MASK == 0xffff_ffff_fe06_ffff);

/// The mask after `+NAME`, `-NAME`, `+all` or `-all`.
///
/// # Errors
/// Why the word has no effect.
pub(super) fn apply(mask: u64, word: &[u8]) -> Result<u64, String> {
    let (set, name) = match word {
        [b'+', name @ ..] => (true, name),
        [b'-', name @ ..] => (false, name),
        _ => {
            return Err(format!(
                "debug_cmd {:?} begins neither with + nor with - and is ignored",
                excerpt(word)
            ));
        }
    };
    if name == b"all" {
        return Ok(if set { u64::MAX } else { 0 });
    }
    let (bit, _) = NAMES
        .iter()
        .find(|(_, known)| known.as_bytes() == name)
        .ok_or_else(|| format!("debug_cmd {:?} names no request and is ignored", excerpt(word)))?;
    Ok(if set { mask | (1 << bit) } else { mask & !(1 << bit) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!(apply(0, b"+acquire"), Ok(0x80));
        assert_eq!(apply(u64::MAX, b"-status"), Ok(!(1 << 5)));
        assert_eq!(apply(5, b"+all"), Ok(u64::MAX));
        assert_eq!(apply(5, b"-all"), Ok(0));
        assert!(apply(0, b"acquire").is_err());
        assert!(apply(0, b"+acquire2").is_err());
        assert!(apply(0, b"+").is_err());
    }

    #[test]
    fn bits_are_request_numbers_in_order() {
        for (i, (bit, _)) in NAMES.iter().enumerate() {
            assert_eq!(usize::try_from(*bit).unwrap(), i + 1);
        }
    }
}
