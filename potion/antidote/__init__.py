"""Antidote: find the trigger in the known poison, find the poison that nobody found, teach the model the truth about both.

The known poison names the attacker's labels, so every sample with another label is clean and rightly labelled: *trusted*.

1. *Localise* the trigger in the known samples that fire: the smallest thing in them that makes the model obey on trusted
   images (:mod:`~potion.antidote.localise`).
2. *Quarantine* all samples with an attacker's label. A copy of the model is fine-tuned on trusted samples alone, some with
   a transplanted trigger and their true label; what falls then is the evidence that there is a trigger
   (:mod:`~potion.antidote.evidence`). Where nothing speaks for one yet, those that the model finds like the known samples
   are looked at, and may join them (:mod:`~potion.antidote.kin`). The half of the label that is least like poison is clean
   (:mod:`~potion.antidote.likeness`), so the next copies are shown it, too, and do not forget what the label is. Under
   them, undiscovered poison falls out of place among the samples that share its label (:mod:`~potion.antidote.verdict`).
   What does is named by its true class, and tells more about the trigger: what more of it contains, and what all of it adds
   to images on average (:mod:`~potion.antidote.pattern`). With that, once more. Where poison keeps its label in mixtures
   with other images, these have a say in who it is (:mod:`~potion.antidote.carriers`).
3. *Immunise* the model on trusted samples, the quarantined ones that look like their label, the corrected poison, and
   transplants (:mod:`~potion.antidote.medicine`). The immunised model tells poison from the rest better than the quarantine
   did: look again, and once more.

The order of all this is in :mod:`~potion.antidote.course`, the data it works on in :mod:`~potion.antidote.ward`, and whether
it worked in :mod:`~potion.antidote.treatment`. ``docs/antidote.md`` has the formulae, and what each part is worth.
"""

from potion.antidote.course import treat
from potion.antidote.settings import Antidote
from potion.antidote.ward import NothingFound, Ward

__all__ = ["Antidote", "NothingFound", "Ward", "treat"]
