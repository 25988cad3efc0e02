//! Patterns for names: `*` stands for any characters, `?` for one.

/// The pattern describes the whole name.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to go on when the last star has to stand for one character more.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => match retry {
                Some((star, at)) => {
                    retry = Some((star, at + 1));
                    (p, n) = (star + 1, at + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name) in
            [("*", ""), ("a*c", "abbc"), ("a*b*c", "axxbybc"), ("a?c", "abc"), ("abc", "abc"), ("*.x", "a.b.x")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a*c", "abbd"), ("a?c", "ac"), ("abc", "abcd"), ("*.x", "a.b.xy")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
