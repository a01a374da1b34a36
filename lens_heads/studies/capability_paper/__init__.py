"""The study "Compressed Sensing for Capability Localization": which few heads carry a capability?"""
