//! A leader record as lines `name value`: what `read_leader` prints and `write_leader` reads (command-line.md 8.3, 8.7).

use sanlock_lease::geometry::SectorSize;
use sanlock_lease::name::Name;
use sanlock_lease::record::RawLeader;
use std::fmt::Write;

/// All fields of a record, one per line.
pub(super) fn text(record: &RawLeader, resource: bool) -> Vec<u8> {
    let mut out = format!(
        "magic {:#x}\nversion {:#x}\nflags {:#x}\nsector_size {}\nnum_hosts {}\nmax_hosts {}\nowner_id {}\n\
         owner_generation {}\nlver {}\nspace_name ",
        record.magic.get(),
        record.version.get(),
        record.flags.get(),
        record.sector_size,
        record.num_hosts,
        record.max_hosts,
        record.owner_id,
        record.owner_generation,
        record.lver
    )
    .into_bytes();
    out.extend_from_slice(Name::from_field(&record.space_name).as_bytes());
    out.extend_from_slice(b"\nresource_name ");
    out.extend_from_slice(Name::from_field(&record.resource_name).as_bytes());
    let names = if resource {
        ["write_id", "write_generation", "write_timestamp"]
    } else {
        ["extra1", "extra2", "extra3"]
    };
    let mut rest = format!(
        "\ntimestamp {}\nchecksum {:#x}\nio_timeout {}\n",
        record.timestamp,
        record.checksum.get(),
        record.io_timeout
    );
    for (name, value) in names.iter().zip([record.write_id, record.write_generation, record.write_timestamp])
    {
        // Writing to a string cannot fail.
        let _ = writeln!(rest, "{name} {value}");
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// What a file of such lines asks for.
#[derive(Debug, Default)]
pub(super) struct Edits {
    /// Field name and value, in the order of the file.
    values: Vec<(String, Value)>,
    /// The line `checksum`, if there is one.
    pub(super) checksum: Option<u32>,
    /// What to say about lines that mean nothing, with newlines.
    pub(super) ignored: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Value {
    Number(u64),
    Name(Name),
}

/// A line whose value does not fit its field.
#[derive(Debug, thiserror::Error)]
#[error("{field} {value:?}: expected {expected}; nothing was written")]
pub(super) struct FieldError {
    field: String,
    value: String,
    expected: &'static str,
}

/// How a field is written.
#[derive(Clone, Copy)]
enum Kind {
    /// `0x` and hexadecimal digits, 32 bits.
    Hex,
    /// Decimal, up to this.
    Decimal(u64),
    Name,
}

/// The fields that can be set; those of resources and of lockspaces have different names for the last three.
fn kind(field: &str, resource: bool) -> Option<Kind> {
    Some(match field {
        "magic" | "version" | "flags" | "checksum" => Kind::Hex,
        "sector_size" => Kind::Decimal(u32::MAX.into()),
        "io_timeout" => Kind::Decimal(u16::MAX.into()),
        "num_hosts" | "max_hosts" | "owner_id" | "owner_generation" | "lver" | "timestamp" => {
            Kind::Decimal(u64::MAX)
        }
        "write_id" | "write_generation" | "write_timestamp" if resource => Kind::Decimal(u64::MAX),
        "extra1" | "extra2" | "extra3" if !resource => Kind::Decimal(u64::MAX),
        "space_name" | "resource_name" => Kind::Name,
        _ => return None,
    })
}

impl Edits {
    /// Reads lines of two words; more words on a line mean nothing.
    ///
    /// # Errors
    /// A value that does not fit. The original takes the number that the value begins with, 0 if there is none.
    pub(super) fn read(file: &[u8], resource: bool) -> Result<Self, FieldError> {
        let mut edits = Self::default();
        for line in file.split_inclusive(|&byte| byte == b'\n') {
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let (Some(field), Some(value)) = (words.next(), words.next()) else {
                edits.ignored.extend_from_slice(&[b"ignore line: \"", line, b"\"\n"].concat());
                continue;
            };
            let field = String::from_utf8_lossy(field).into_owned();
            let Some(kind) = kind(&field, resource) else {
                edits.ignored.extend_from_slice(format!("ignore field: \"{field}\"\n").as_bytes());
                continue;
            };
            let value = kind.read(value).map_err(|expected| FieldError {
                field: field.clone(),
                value: String::from_utf8_lossy(value).into_owned(),
                expected,
            })?;
            match (field.as_str(), value) {
                ("checksum", Value::Number(sum)) => edits.checksum = u32::try_from(sum).ok(),
                _ => edits.values.push((field, value)),
            }
        }
        Ok(edits)
    }

    /// The sector size that is to be set, if there is such a size.
    pub(super) fn sector_size(&self) -> Option<SectorSize> {
        let mut record = RawLeader::zeroed();
        self.apply(&mut record);
        SectorSize::from_bytes(record.sector_size.get())
    }

    /// Puts the values into `record`, whose checksum stays as it is.
    pub(super) fn apply(&self, record: &mut RawLeader) {
        for (field, value) in &self.values {
            match *value {
                Value::Name(name) if field == "space_name" => record.space_name = name.to_field(),
                Value::Name(name) => record.resource_name = name.to_field(),
                Value::Number(number) => set(record, field, number),
            }
        }
    }
}

/// Sets a number; `Edits::read` has seen to its range.
fn set(record: &mut RawLeader, field: &str, number: u64) {
    let short = u32::try_from(number).unwrap_or(u32::MAX);
    match field {
        "magic" => record.magic = short.into(),
        "version" => record.version = short.into(),
        "flags" => record.flags = short.into(),
        "sector_size" => record.sector_size = short.into(),
        "io_timeout" => record.io_timeout = u16::try_from(number).unwrap_or(u16::MAX).into(),
        "num_hosts" => record.num_hosts = number.into(),
        "max_hosts" => record.max_hosts = number.into(),
        "owner_id" => record.owner_id = number.into(),
        "owner_generation" => record.owner_generation = number.into(),
        "lver" => record.lver = number.into(),
        "timestamp" => record.timestamp = number.into(),
        "write_id" | "extra1" => record.write_id = number.into(),
        "write_generation" | "extra2" => record.write_generation = number.into(),
        _ => record.write_timestamp = number.into(),
    }
}

impl Kind {
    fn read(self, value: &[u8]) -> Result<Value, &'static str> {
        let text = std::str::from_utf8(value).unwrap_or_default();
        match self {
            Self::Hex => text
                .strip_prefix("0x")
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                .map(|number| Value::Number(number.into()))
                .ok_or("0x and up to eight hexadecimal digits"),
            Self::Decimal(max) => text
                .parse()
                .ok()
                .filter(|&number| number <= max && text.bytes().all(|byte| byte.is_ascii_digit()))
                .map(Value::Number)
                .ok_or("a decimal number that fits the field"),
            Self::Name => Name::new(value).map(Value::Name).map_err(|_| "a name of at most 48 bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RawLeader {
        let mut record = RawLeader::zeroed();
        record.magic = 0x0615_2010.into();
        record.version = 0x0006_0004.into();
        record.flags = 0x11.into();
        record.sector_size = 512.into();
        record.num_hosts = 1.into();
        record.max_hosts = 2.into();
        record.owner_id = 3.into();
        record.owner_generation = 4.into();
        record.lver = u64::MAX.into();
        record.space_name = Name::new(b"LS").unwrap().to_field();
        record.resource_name = Name::new(&[b'x'; 48]).unwrap().to_field();
        record.timestamp = 6.into();
        record.io_timeout = 255.into();
        record.write_id = 7.into();
        record.write_generation = 8.into();
        record.write_timestamp = 9.into();
        record.seal();
        record
    }

    #[test]
    fn what_is_printed_is_understood_again() {
        for resource in [true, false] {
            let edits = Edits::read(&text(&record(), resource), resource).unwrap();
            assert_eq!(edits.ignored, b"");
            assert_eq!(edits.checksum, Some(record().checksum.get()));
            let mut copy = RawLeader::zeroed();
            edits.apply(&mut copy);
            copy.seal();
            assert_eq!(copy, record());
        }
    }

    #[test]
    fn lines_that_mean_nothing_are_named() {
        let file = b"read_leader done 0\nfoo\n\nlver\t 8 9\nunused1 3\nextra1 4\nlver 9\nlver";
        let edits = Edits::read(file, true).unwrap();
        let ignored = "ignore field: \"read_leader\"\nignore line: \"foo\n\"\nignore line: \"\n\"\nignore field: \"unused1\"\n\
                       ignore field: \"extra1\"\nignore line: \"lver\"\n";
        assert_eq!(String::from_utf8_lossy(&edits.ignored), ignored);
        let mut copy = record();
        edits.apply(&mut copy);
        assert_eq!(copy, RawLeader { lver: 9.into(), ..record() });
    }

    #[test]
    fn the_last_sector_size_counts_if_there_is_such_a_size() {
        for (file, expected) in [
            ("lver 1\n", None),
            ("sector_size 512", Some(SectorSize::B512)),
            ("sector_size 512\nsector_size 4096\n", Some(SectorSize::B4096)),
            ("sector_size 512\nsector_size 100\n", None),
        ] {
            assert_eq!(Edits::read(file.as_bytes(), false).unwrap().sector_size(), expected, "{file:?}");
        }
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        let long = format!("resource_name {}", "x".repeat(49));
        for line in [
            "lver 0x20",
            "lver 5x",
            "lver -1",
            "lver +1",
            "lver 18446744073709551616",
            "io_timeout 65536",
            "sector_size 4294967808",
            "magic 100",
            "flags 0x",
            "version 0x+1",
            "checksum 0x123456789",
            long.as_str(),
        ] {
            let error = Edits::read(format!("timestamp 7\n{line}\n").as_bytes(), true).unwrap_err();
            assert!(error.to_string().starts_with(line.split(' ').next().unwrap()), "{error}");
        }
    }
}
