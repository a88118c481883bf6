// The page of a report: one answer.
zeroplanAnswer.draw(zeroplanPage.doc);
