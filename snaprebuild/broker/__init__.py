"""What a broker does with its directories at its next start: facts in, fates out."""
