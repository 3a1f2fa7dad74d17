"""
API objects of other authors: conversion between API versions, and decoding into facts.

Used by: The informer bridge decodes what the API server shows; plans decode manifests.
May import: kubernetes.
"""
