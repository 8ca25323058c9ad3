"""The kinds of labels. *Classes* are integers. *Marks* are several labels at once, each yes or no. *Numbers* are what a
regression learns, one per sample or a row of them.
"""

from typing import Literal

LabelKind = Literal["classes", "marks", "numbers"]
