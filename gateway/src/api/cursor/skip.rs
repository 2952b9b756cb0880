//! Values that nobody asks for: checked as any other, and left.
//!
//! Nothing here recurses: what a value has opened is a bit a level. Invariant: a value that was skipped is one that the
//! tape would have read.

use zerohop_simd::Level;

use super::Cursor;

impl Cursor<'_, '_> {
    /// `null`, and nothing else.
    pub(crate) fn null(&mut self) -> Option<()> {
        (self.peek()? == b'n').then_some(())?;
        self.skip()
    }

    /// Any value, checked and left.
    #[inline(always)]
    pub(crate) fn skip(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.skip_string(),
            _ => self.skip_far(),
        }
    }

    #[inline(never)]
    fn skip_far(&mut self) -> Option<()> {
        // One bit for each level that the value has opened, the innermost lowest; set: an object.
        let (mut objects, mut levels) = (0_u128, 0);
        loop {
            match self.peek()? {
                b'"' => self.skip_string()?,
                bracket @ (b'{' | b'[') => {
                    let object = bracket == b'{';
                    self.open(bracket)?;
                    if self.peek()? == if object { b'}' } else { b']' } {
                        self.close();
                    } else {
                        objects = objects << 1 | u128::from(object);
                        levels += 1;
                        if object {
                            self.skip_key()?;
                        }
                        continue;
                    }
                }
                _ => {
                    self.scalar()?;
                }
            }
            // Behind a value.
            loop {
                if levels == 0 {
                    return Some(());
                }
                let object = objects & 1 == 1;
                match (self.peek()?, object) {
                    (b'}', true) | (b']', false) => {
                        self.close();
                        objects >>= 1;
                        levels -= 1;
                    }
                    (b',', _) => {
                        self.at += 1;
                        if object {
                            self.skip_key()?;
                        }
                        break;
                    }
                    _ => return None,
                }
            }
        }
    }

    fn skip_key(&mut self) -> Option<()> {
        (self.peek()? == b'"').then_some(())?;
        self.skip_string()?;
        self.pass(b':')
    }

    /// The string whose quote is at hand.
    #[inline(always)]
    fn skip_string(&mut self) -> Option<()> {
        let at = self.finder.find(self.at + 1);
        match self.text.as_bytes().get(at)? {
            b'"' => {
                self.at = at + 1;
                Some(())
            }
            _ => self.skip_escapes(at),
        }
    }

    #[inline(never)]
    fn skip_escapes(&mut self, mut at: usize) -> Option<()> {
        let bytes = self.text.as_bytes();
        while bytes.get(at)? == &b'\\' {
            at = self.finder.find(at + Level::escape(&bytes[at..]).ok()?);
        }
        (bytes[at] == b'"').then(|| self.at = at + 1)
    }
}
