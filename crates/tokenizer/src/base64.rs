//! Bytes written in base64, as token ranks and normalisation tables are stored.

/// The bytes; none if the text is not base64 of at least one byte, with its padding.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| {
        Some(match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        })
    };
    let digits = text.trim_end_matches('=');
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for c in digits.bytes() {
        bits = bits << 6 | u32::from(digit(c)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (!out.is_empty() && bits == 0 && text.len().is_multiple_of(4)).then_some(out)
}
